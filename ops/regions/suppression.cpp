// Non-maximum suppression: how many boxes are kept depends on values.
#include "espalier/ops/functions/suppression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/core/node.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/values_later.h"
#include "espalier/core/workspace.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

constexpr std::string_view instead =
    "the number of boxes that are kept depends on values, which a tree downstream of a feed and a plan do "
    "not "
    "have when shapes are inferred; call it with values, outside of the tree";

/// The settings of a search, and its operands: boxes [images, n, 4], scores [images, classes, n], and, or an
/// undefined Tensor, the class of each box, [n].
struct Search {
  int64_t most;
  double threshold, least_score;
  bool centered;
};

template <class T>
struct Box {
  T x1, y1, x2, y2, area;

  Box(const T* from, bool centered) {
    if (centered) {
      x1 = from[0] - from[2] / 2, x2 = from[0] + from[2] / 2;
      y1 = from[1] - from[3] / 2, y2 = from[1] + from[3] / 2;
    } else {
      x1 = std::min(from[0], from[2]), x2 = std::max(from[0], from[2]);
      y1 = std::min(from[1], from[3]), y2 = std::max(from[1], from[3]);
    }
    area = (x2 - x1) * (y2 - y1);
  }
  bool overlaps(const Box& other, double threshold) const {
    const T width = std::max(T(0), std::min(x2, other.x2) - std::max(x1, other.x1)),
            height = std::max(T(0), std::min(y2, other.y2) - std::max(y1, other.y1));
    const T common = width * height;
    return static_cast<double>(common / (area + other.area - common)) > threshold;
  }
};

/// The kept ones of n boxes, by descending scores. A score of NaN is larger than all numbers.
template <class T>
std::vector<int64_t> kept_of(const std::vector<Box<T>>& boxes, const T* scores, const int64_t* classes,
                             const Search& search) {
  std::vector<int64_t> order, kept;
  for (int64_t i = 0; i < static_cast<int64_t>(boxes.size()); ++i)
    if (!(static_cast<double>(scores[i]) <= search.least_score)) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    if (std::isnan(scores[a]) || std::isnan(scores[b])) return std::isnan(scores[a]) > std::isnan(scores[b]);
    return scores[a] > scores[b];
  });
  for (const int64_t i : order) {
    if (static_cast<int64_t>(kept.size()) >= search.most) break;
    const bool dropped = std::any_of(kept.begin(), kept.end(), [&](int64_t k) {
      if (classes && classes[k] != classes[i]) return false;
      return boxes[static_cast<size_t>(k)].overlaps(boxes[static_cast<size_t>(i)], search.threshold);
    });
    if (!dropped) kept.push_back(i);
  }
  return kept;
}

/// In float32 if they are halves, and on the host.
Tensor host_reals(const Tensor& x) {
  return x.to(cpu()).to(is_half(x.dtype()) ? float32 : x.dtype()).contiguous_copy();
}

/// (image, class, box) of all that are kept.
std::vector<int64_t> kept_rows(const Tensor& boxes, const Tensor& scores, const Tensor* classes,
                               const Search& search) {
  const Tensor corners = host_reals(boxes), ranks = host_reals(scores);
  const Tensor kinds = classes ? classes->to(cpu()).to(int64).contiguous_copy() : Tensor();
  const int64_t images = scores.shape()[0], groups = scores.shape()[1], n = scores.shape()[2];
  std::vector<int64_t> rows;
  visit(corners.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (Reals::accepts<T>) {
      const T *from = static_cast<const T*>(corners.address()),
              *rank = static_cast<const T*>(ranks.address());
      const auto* kind = classes ? static_cast<const int64_t*>(kinds.address()) : nullptr;
      for (int64_t image = 0; image < images; ++image) {
        std::vector<Box<T>> list;
        for (int64_t i = 0; i < n; ++i) list.emplace_back(from + 4 * (image * n + i), search.centered);
        for (int64_t group = 0; group < groups; ++group)
          for (const int64_t i : kept_of(list, rank + (image * groups + group) * n, kind, search))
            rows.insert(rows.end(), {image, group, i});
      }
    }
  });
  return rows;
}

Tensor rows_tensor(const std::vector<int64_t>& rows) {
  return tensor_from(rows, {static_cast<int64_t>(rows.size() / 3), 3});
}

/// Outputs `count` rows (image, class, box). A later evaluation that keeps another number is an error.
class Suppression : public Op {
 public:
  Suppression(int64_t count, const Search& search, std::string function)
      : Op({.runs_on_host = true, .gradient_reads = InputSet::none(), .passes_no_gradient = true}),
        count_(count),
        search_(search),
        function_(std::move(function)) {}
  std::string_view name() const override { return "non_max_suppression"; }
  Attributes attributes() const override {
    return {{"count", count_},
            {"most", search_.most},
            {"threshold", search_.threshold},
            {"least_score", search_.least_score},
            {"centered", search_.centered},
            {"function", function_}};
  }
  bool mixes(size_t, size_t, const InputSpecs&) const override { return true; }
  Specs infer(const InputSpecs& in) const override {
    const Shape &boxes = in[0]->shape, &scores = in[1]->shape;
    check_dtype<Reals>(*in[0], name());
    check_same_dtype(*in[0], *in[1], name());
    const bool fits = boxes.rank() == 3 && scores.rank() == 3 && boxes[2] == 4 && boxes[0] == scores[0] &&
                      boxes[1] == scores[2];
    const bool has_classes = in.size() > 2;
    if (!fits || (has_classes && !(in[2]->shape == Shape{boxes[1]})))
      throw ShapeError(fmt::format("{}: boxes of shape {}, scores of shape {} and classes of shape {}",
                                   name(), boxes.str(), scores.str(),
                                   has_classes ? in[2]->shape.str() : "none"));
    return {{DType::int64, Shape{count_, 3}}};
  }
  void run_cpu(const KernelCall& call) const override {
    const std::vector<int64_t> rows = kept_rows(*call.inputs[0], *call.inputs[1],
                                                call.inputs.size() > 2 ? call.inputs[2] : nullptr, search_);
    const auto kept = static_cast<int64_t>(rows.size() / 3);
    if (kept != count_)
      throw UnsupportedError(fmt::format("{}: keeps {} boxes now, where it kept {} when it was written",
                                         function_, kept, count_));
    copy_elements(rows_tensor(rows), *call.outputs[0]);
  }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall&, const BindContext& context) const override {
    if (context.find<Workspace>()) throw UnsupportedError(fmt::format("{}: {}", function_, instead));
    return nullptr;
  }
  Gradients gradient(const GradientRule& rule) const override { return Gradients(rule.inputs()); }

 private:
  int64_t count_;
  Search search_;
  std::string function_;  // that the user called, for errors
};

void check_boxes(const Variable& boxes, const Variable& scores, std::string_view function) {
  for (const Variable* v : {&boxes, &scores})
    if (!is_real(v->dtype()))
      throw TypeError(fmt::format("{}: takes real numbers, not {} (shape {})", function, name(v->dtype()),
                                  v->shape().str()));
  check_same_dtype({boxes.dtype(), boxes.shape()}, {scores.dtype(), scores.shape()}, function);
}
void check_threshold(double threshold, std::string_view function) {
  if (std::isnan(threshold)) throw Error(fmt::format("{}: the threshold is NaN", function));
}

/// Boxes [images, n, 4] with scores [images, classes, n], both checked.
Variable suppressed(const Variable& boxes, const Variable& scores, const Variable& classes,
                    const Search& search, std::string_view function) {
  for (const Variable* v : {&boxes, &scores, &classes})
    if (v->defined() && v->node()->lazy) throw UnsupportedError(fmt::format("{}: {}", function, instead));
  if (build_context().lazy) throw UnsupportedError(fmt::format("{}: {}", function, instead));
  const Tensor kinds = classes.defined() ? classes.value() : Tensor();
  const Tensor rows =
      rows_tensor(kept_rows(boxes.value(), scores.value(), classes.defined() ? &kinds : nullptr, search));
  const auto op = std::make_shared<Suppression>(rows.shape()[0], search, std::string(function));
  const auto where = std::source_location::current();
  const auto copy = [&](Tensor& result) { copy_elements(rows, result); };  // what was found to count them
  return classes.defined() ? apply_by(copy, op, {&boxes, &scores, &classes}, where)
                           : apply_by(copy, op, {&boxes, &scores}, where);
}

constexpr int64_t all_boxes = std::numeric_limits<int64_t>::max();
constexpr double any_score = -std::numeric_limits<double>::infinity();

/// Of one image and one class.
Variable kept_boxes(const Variable& boxes, const Variable& scores, const Variable& classes, double threshold,
                    std::string_view function) {
  check_boxes(boxes, scores, function);
  check_threshold(threshold, function);
  if (boxes.rank() != 2 || boxes.shape()[1] != 4 || scores.rank() != 1 ||
      scores.shape()[0] != boxes.shape()[0])
    throw ShapeError(fmt::format("{}: boxes of shape {} with scores of shape {}, not [n, 4] and [n]",
                                 function, boxes.shape().str(), scores.shape().str()));
  const Search search{all_boxes, threshold, any_score, false};
  const Variable rows =
      suppressed(unsqueeze(boxes, 0), reshape(scores, {1, 1, -1}), classes, search, function);
  return squeeze(slice(rows, 1, 2, 3), 1);
}

}  // namespace

Variable nms(const Operand& boxes, const Operand& scores, double threshold) {
  const CallScope scope(boxes.where());
  return located(boxes.where(), [&] {
    return kept_boxes(boxes.defined("nms"), scores.defined("nms"), {}, threshold, "nms");
  });
}

Variable batched_nms(const Operand& boxes, const Operand& scores, const Operand& classes, double threshold) {
  const CallScope scope(boxes.where());
  return located(boxes.where(), [&] {
    constexpr std::string_view function = "batched_nms";
    const Variable &given = boxes.defined(function), &kinds = classes.defined(function);
    if (kinds.dtype() != int32 && kinds.dtype() != int64)
      throw TypeError(fmt::format("{}: classes are {}, not int32 or int64", function, name(kinds.dtype())));
    if (given.rank() != 2 || kinds.rank() != 1 || kinds.shape()[0] != given.shape()[0])
      throw ShapeError(fmt::format("{}: classes of shape {} for boxes of shape {}", function,
                                   kinds.shape().str(), given.shape().str()));
    return kept_boxes(given, scores.defined(function), kinds, threshold, function);
  });
}

Variable non_max_suppression(const Operand& boxes, const Operand& scores, const SuppressionOptions& o) {
  const CallScope scope(boxes.where());
  return located(boxes.where(), [&] {
    constexpr std::string_view function = "non_max_suppression";
    const Variable &given = boxes.defined(function), &ranks = scores.defined(function);
    check_boxes(given, ranks, function);
    check_threshold(o.threshold, function);
    if (o.most && *o.most < 0) throw Error(fmt::format("{}: at most {} boxes", function, *o.most));
    if (o.least_score && std::isnan(*o.least_score))
      throw Error(fmt::format("{}: the least score is NaN", function));
    if (given.rank() != 3 || ranks.rank() != 3 || given.shape()[2] != 4 ||
        given.shape()[0] != ranks.shape()[0] || given.shape()[1] != ranks.shape()[2])
      throw ShapeError(
          fmt::format("{}: boxes of shape {} with scores of shape {}, not [images, n, 4] and "
                      "[images, classes, n]",
                      function, given.shape().str(), ranks.shape().str()));
    const Search search{o.most.value_or(all_boxes), o.threshold, o.least_score.value_or(any_score),
                        o.centered};
    return suppressed(given, ranks, {}, search, function);
  });
}

void add_suppression_op(OpRegistry& ops) {
  ops.add("non_max_suppression", {2, 3}, [](AttributeReader& a) {
    const int64_t count = a.integer("count", 0);
    Search search{};
    search.most = a.integer("most", 0);
    search.threshold = a.real("threshold");
    search.least_score = a.real("least_score");
    search.centered = a.flag("centered");
    return std::make_shared<Suppression>(count, search, a.text("function"));
  });
}

}  // namespace espalier
