#include "espalier/ops/losses/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "espalier/core/deferred/stacked.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/kept_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/reductions/reduce.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

constexpr int64_t exponential_grain = detail::grain / 4;  // elements; each costs an exponential

/// What both ops have.
class PickOp : public Op, public Batchable {
 public:
  PickOp(std::string function, bool loss, const OpTraits& traits)
      : Op(traits), function_(std::move(function)), loss_(loss) {}
  Attributes attributes() const override { return {{"function", function_}, {"loss", loss_}}; }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return input == 0 && axis + 1 == in[0]->shape.rank();
  }
  InputSet row_inputs(const InputSpecs& in) const override {
    return in[0]->shape.rank() > 1 ? InputSet::all() : InputSet::none();
  }

 protected:
  template <class T>
  T sign() const {
    return loss_ ? T(-1) : T(1);
  }
  /// The node of all rows of several nodes.
  static Variable applied(const Stacked& in) {
    SmallVector<Variable, 4> rows;
    for (size_t i = 0; i < in.size(); ++i) rows.push_back(in.stacked(i));
    SmallVector<const Variable*, 4> inputs;
    for (const Variable& each : rows) inputs.push_back(&each);
    return apply(in.op(), {inputs.data(), inputs.size()}, std::source_location::current());
  }

  /// The specs of what is picked and of the statistics.
  Specs picked(const Spec& logits, const Spec& chosen) const {
    check_dtype<Reals>(logits, name());
    check_indices(chosen, function_);
    const Shape &x = logits.shape, &labels = chosen.shape;
    if (x.rank() == 0 || !(Shape(Dims(x.begin(), x.end() - 1)) == labels) ||
        (loss_ && (labels.rank() == 0 || labels[-1] != 1)))
      throw ShapeError(
          fmt::format("{}: labels of shape {} do not go with logits of shape {}: logits are "
                      "[..., classes], the classes last, and labels integers of [...] or [..., 1]",
                      function_, labels.str(), x.str()));
    // In 16 bits the logarithm of the sum would scale gradients wrongly by percents.
    const DType figures = is_half(logits.dtype) ? DType::float32 : logits.dtype;
    Dims statistics = labels.dims();
    statistics.push_back(2);
    return {{logits.dtype, loss_ ? Shape(Dims(labels.begin(), labels.end() - 1)) : labels},
            {figures, Shape(std::move(statistics))}};
  }

  const std::string function_;
  const bool loss_;
};

class LogSoftmaxPick : public PickOp {
 public:
  LogSoftmaxPick(std::string function, bool loss)
      : PickOp(std::move(function), loss, {.gradient_reads_output = true}) {}
  std::string_view name() const override { return "log_softmax_pick"; }
  Specs infer(const InputSpecs& in) const override { return picked(*in[0], *in[1]); }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    const int64_t n = x.shape()[-1];
    with_labels(*call.inputs[1], n, function_, [&](auto label, int64_t rows) {
      visit(x.dtype(), [&]<class T>(TypeTag<T>) {
        if constexpr (Reals::accepts<T>) {
          const T* in = static_cast<const T*>(x.address());
          T *out = detail::output<T>(call), *figures = detail::output<T>(call, 1);
          parallel_for(rows, std::max<int64_t>(1, exponential_grain / std::max<int64_t>(1, n)),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t r = begin; r < end; ++r) {
                           const T* row = in + r * n;
                           const T largest = detail::extreme_row<scalar::Maximum>(row, n);
                           const T log_sum = std::log(sum_of_exponentials(row, n, largest));
                           out[r] = sign<T>() * (row[label(r)] - largest - log_sum);
                           figures[2 * r] = largest;
                           figures[2 * r + 1] = log_sum;
                         }
                       });
        }
      });
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    if (!rule.wants(0)) return {Variable(), Variable()};
    const Variable x = rule.input(0), figures = rule.output(1), labels = rule.input(1);
    return {apply(log_softmax_pick_gradient(function_, loss_),
                  {&x, &figures, &labels, &rule.output_gradient()}, rule.where()),
            Variable()};
  }
  Gradients batched(const Stacked& in) const override {
    const Variable rows = applied(in);
    return {rows, Variable(rows.node(), 1)};
  }

 private:
  template <class T>
  static T sum_of_exponentials(const T* row, int64_t n, T largest) {
    constexpr int64_t block = 512;
    T part[block];
    T total{};
    for (int64_t begin = 0; begin < n; begin += block) {
      const int64_t count = std::min(block, n - begin);
      T* to = part;
      const T* from = row + begin;
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < count; ++i) to[i] = scalar::Exp()(from[i] - largest);
      });
      total += detail::sum_row(part, count, 1);
    }
    return total;
  }
};

class LogSoftmaxPickGradient : public PickOp {
 public:
  LogSoftmaxPickGradient(std::string function, bool loss)
      : PickOp(std::move(function), loss,
               {.in_place = InputSet::only(0), .gradient_reads = InputSet::all_but(1)}) {}
  std::string_view name() const override { return "log_softmax_pick_gradient"; }
  Specs infer(const InputSpecs& in) const override {
    const Specs of = picked(*in[0], *in[2]);
    const auto differs = [&](const Spec& given, const Shape& shape) {  // 16 bits are widened
      return !(given.shape == shape) || (is_half(given.dtype) ? DType::float32 : given.dtype) != of[1].dtype;
    };
    if (differs(*in[1], of[1].shape) || differs(*in[3], of[0].shape))
      throw ShapeError(
          fmt::format("{}: statistics {} and gradients {} do not go with logits {} and labels {}", name(),
                      in[1]->shape.str(), in[3]->shape.str(), in[0]->shape.str(), in[2]->shape.str()));
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy(), statistics = call.inputs[1]->contiguous_copy(),
                 all = *call.inputs[3];
    const bool one =
        std::all_of(all.strides().begin(), all.strides().end(), [](int64_t s) { return s == 0; });
    const Tensor g = one ? all : all.contiguous_copy();  // the gradient of the mean is one value for all rows
    const int64_t n = x.shape()[-1];
    with_labels(*call.inputs[2], n, function_, [&](auto label, int64_t rows) {
      visit(x.dtype(), [&]<class T>(TypeTag<T>) {
        if constexpr (Reals::accepts<T>) {
          const T* in = static_cast<const T*>(x.address());
          const T* figures = static_cast<const T*>(statistics.address());
          const T* slopes = static_cast<const T*>(g.address());
          T* out = detail::output<T>(call);
          parallel_for(rows, std::max<int64_t>(1, exponential_grain / std::max<int64_t>(1, n)),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t r = begin; r < end; ++r) {
                           const T *from = in + r * n, largest = figures[2 * r], log_sum = figures[2 * r + 1];
                           const T slope = sign<T>() * slopes[one ? 0 : r];
                           T* to = out + r * n;
                           vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
                             for (int64_t i = 0; i < n; ++i)
                               to[i] = -slope * scalar::Exp()(from[i] - largest - log_sum);
                           });
                           to[label(r)] += slope;
                         }
                       });
        }
      });
    });
  }
  /// Of g · (one_hot(label) - p) with p = softmax(x), of which the statistics are a part.
  Gradients gradient(const GradientRule& rule) const override {
    Gradients result(4);
    const Variable& arrived = rule.output_gradient();
    const Variable labels = rule.input(2), p = softmax(rule.input(0));
    const Variable of_all = loss_ ? negative(arrived) : arrived, part = of_all * p;
    if (rule.wants(0)) {
      const Variable g = loss_ ? unsqueeze(rule.input(3), -1) : rule.input(3);
      result[0] = unsqueeze(g, -1) * (p * sum(part, -1, true) - part);
    }
    if (rule.wants(3)) {
      const Variable each = pick_for(function_, of_all, labels) - sum(part, -1);
      result[3] = loss_ ? squeeze(each, -1) : each;
    }
    return result;
  }
  Gradients batched(const Stacked& in) const override { return {applied(in)}; }
};

}  // namespace

OpPtr log_softmax_pick(std::string_view function, bool loss) {
  return kept_op<LogSoftmaxPick>(function, loss);
}
OpPtr log_softmax_pick_gradient(std::string_view function, bool loss) {
  return kept_op<LogSoftmaxPickGradient>(function, loss);
}

void add_cross_entropy_ops(OpRegistry& ops) {
  ops.add("log_softmax_pick", 2,
          [](AttributeReader& a) { return log_softmax_pick(a.text("function"), a.flag("loss", false)); });
  ops.add("log_softmax_pick_gradient", 4, [](AttributeReader& a) {
    return log_softmax_pick_gradient(a.text("function"), a.flag("loss", false));
  });
}

}  // namespace espalier
