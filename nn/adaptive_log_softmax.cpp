#include "espalier/nn/adaptive_log_softmax.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/layer_state.h"
#include "espalier/nn/target_calls.h"
#include "espalier/ops/indexing/look_up.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

/// Children: "head", and "tail" with a Sequential for each cluster.
class AdaptiveLogSoftmaxState : public LayerStateOf<AdaptiveLogSoftmaxState> {
 public:
  AdaptiveLogSoftmaxState(int64_t in, int64_t classes, std::vector<int64_t> cutoffs,
                          const AdaptiveLogSoftmaxOptions& options)
      : LayerStateOf("AdaptiveLogSoftmax"), in_(in), classes_(classes), cutoffs_(std::move(cutoffs)) {
    check(options);
    const DenseOptions with_bias{.bias = options.head_bias, .dtype = options.dtype},
        plain{.bias = false, .dtype = options.dtype};
    add_child("head", Dense(in, cutoffs_[0] + clusters(), with_bias).state());
    auto tail = std::make_shared<ContainerState>();
    add_child("tail", tail);
    for (int64_t i = 0; i < clusters(); ++i) {
      const int64_t width = width_of(i, options.div_value);
      tail->add_child(fmt::format("{}", i),
                      Sequential(Dense(in, width, plain), Dense(width, last(i) - first(i), plain)).state());
    }
  }

  Variable forward(const Variable& x) override { return log_prob(x); }

  Variable log_prob(const Variable& x) {
    const Variable head = head_of(x);
    std::vector<Variable> parts{slice(head, 1, 0, cutoffs_[0])};
    for (int64_t i = 0; i < clusters(); ++i)
      parts.push_back(slice(head, 1, cutoffs_[0] + i, cutoffs_[0] + i + 1) + cluster_of(x, i));
    return concat(parts, 1);
  }

  TargetLogProbs of_targets(const Variable& x, const Variable& target) {
    check_targets(kind(), x, target);
    const Variable head = head_of(x);
    // In the head, each target has a class, or a cluster; there it has a place of its own.
    Tensor in_head({classes_}, int64), in_cluster({classes_}, int64);
    for (int64_t c = 0, i = -1; c < classes_; ++c) {
      if (i + 1 < clusters() && c == first(i + 1)) ++i;
      in_head.span<int64_t>()[static_cast<size_t>(c)] = i < 0 ? c : cutoffs_[0] + i;
      in_cluster.span<int64_t>()[static_cast<size_t>(c)] = i < 0 ? 0 : c - first(i);
    }
    const auto looked_up = [&](const Tensor& table) {
      return look_up(kind(), Variable(table.to(target.device())), target, false);
    };
    const Variable position = looked_up(in_head), place = looked_up(in_cluster);
    Variable output = pick(head, position);
    for (int64_t i = 0; i < clusters(); ++i) {
      const Variable here = equal(position, cutoffs_[0] + i);
      const Variable own = pick(cluster_of(x, i), where(here, place, zeros_like(place)));
      output = output + where(here, own, zeros_like(own));
    }
    return {output, -mean(output)};
  }

 private:
  void check(const AdaptiveLogSoftmaxOptions& options) const {
    if (in_ <= 0) throw Error(fmt::format("AdaptiveLogSoftmax: {} inputs; it needs at least one", in_));
    bool rises = !cutoffs_.empty() && cutoffs_[0] > 0 && cutoffs_.back() < classes_;
    for (size_t i = 1; i < cutoffs_.size(); ++i) rises = rises && cutoffs_[i] > cutoffs_[i - 1];
    if (!rises)
      throw Error(
          fmt::format("AdaptiveLogSoftmax: the cutoffs [{}] must rise from at least 1 to at most {}, "
                      "for {} classes",
                      fmt::join(cutoffs_, ", "), classes_ - 1, classes_));
    if (!(options.div_value > 0))
      throw Error(fmt::format("AdaptiveLogSoftmax: div_value is {}; it must be above 0", options.div_value));
    if (!is_real(options.dtype))
      throw TypeError(
          fmt::format("AdaptiveLogSoftmax: the dtype must be a real one, not {}", name(options.dtype)));
    for (int64_t i = 0; i < clusters(); ++i)
      if (width_of(i, options.div_value) < 1)
        throw Error(fmt::format("AdaptiveLogSoftmax: cluster {} would read 0 of {} inputs, with div_value {}",
                                i, in_, options.div_value));
  }
  int64_t width_of(int64_t cluster, double div_value) const {
    return static_cast<int64_t>(
        std::floor(static_cast<double>(in_) / std::pow(div_value, static_cast<double>(cluster + 1))));
  }
  int64_t clusters() const { return static_cast<int64_t>(cutoffs_.size()); }
  int64_t first(int64_t cluster) const { return cutoffs_[static_cast<size_t>(cluster)]; }
  int64_t last(int64_t cluster) const { return cluster + 1 < clusters() ? first(cluster + 1) : classes_; }

  Variable head_of(const Variable& x) {
    check_rows_of(kind(), x, in_);
    return log_softmax(static_cast<LayerState&>(*entries()[0].child).call(x));
  }
  Variable cluster_of(const Variable& x, int64_t i) {
    const ModuleState& tail = *entries()[1].child;
    return log_softmax(static_cast<LayerState&>(*tail.parts()[static_cast<size_t>(i)].child).call(x));
  }

  int64_t in_, classes_;
  std::vector<int64_t> cutoffs_;
};

}  // namespace

AdaptiveLogSoftmax::AdaptiveLogSoftmax(int64_t in, int64_t classes, std::vector<int64_t> cutoffs,
                                       AdaptiveLogSoftmaxOptions options, Where where)
    : LayerOf(located(where, [&] {
        const CallScope scope(where);
        return std::make_shared<AdaptiveLogSoftmaxState>(in, classes, std::move(cutoffs), options);
      })) {}

TargetLogProbs AdaptiveLogSoftmax::operator()(const Variable& x, const Variable& target, Where where) const {
  return call_with_target<AdaptiveLogSoftmaxState>(layer_state(), x, target, where);
}
Variable AdaptiveLogSoftmax::log_prob(const Variable& x, Where where) const { return (*this)(x, where); }
Variable AdaptiveLogSoftmax::predict(const Variable& x, Where where) const {
  const CallScope scope(where);
  return argmax((*this)(x, where), -1);
}

}  // namespace espalier::nn
