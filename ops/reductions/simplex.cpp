// Distributions along an axis that may have zeros.
#include "espalier/ops/functions/simplex.h"

#include <algorithm>

#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/sampling.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/reductions/reduce.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/row_op.h"
#include "espalier/ops/widened.h"

namespace espalier {

namespace {

/// max(x − t, 0) along the last axis, with the t that makes the sum 1. t is the mean of some elements, less
/// one over their number; elements that are not above it are left out until none is. Michelot, A finite
/// algorithm for finding the projection of a point onto the canonical simplex, 1986.
struct Sparsemax : RowOp {
  Sparsemax()
      : RowOp({.in_place = InputSet::all(),
               .gradient_reads = InputSet::none(),
               .gradient_reads_output = true}) {}
  std::string_view name() const override { return "sparsemax"; }
  void run_cpu(const KernelCall& call) const override {
    const Tensor in = call.inputs[0]->contiguous_copy();
    if (in.elements() == 0) return;
    const int64_t n = in.shape()[-1];
    visit(in.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* from = static_cast<const T*>(in.address());
        T* to = detail::output<T>(call);
        for_each_row(in.shape(), 8, [=](int64_t at) { row(to + at, from + at, n); });
      }
    });
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    const Variable support = cast(greater(rule.output(), 0.0), g.dtype()), inside = g * support;
    return {inside - support * (sum(inside, -1, true) / sum(support, -1, true))};
  }

 private:
  /// Elements are counted from the largest: t is at least −1 then.
  template <class T>
  static void row(T* out, const T* in, int64_t n) {
    const T largest = detail::extreme_row<scalar::Maximum>(in, n);
    double bound = -1;
    for (int64_t before = -1;;) {
      double total = 0;
      int64_t count = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double x = static_cast<double>(in[i]) - static_cast<double>(largest);
        total += x > bound ? x : 0;
        count += x > bound;
      }
      if (count == before) break;
      before = count;
      bound = std::max(bound, (total - 1) / static_cast<double>(count));
    }
    for (int64_t i = 0; i < n; ++i)
      out[i] =
          static_cast<T>(scalar::Relu()(static_cast<double>(in[i]) - static_cast<double>(largest) - bound));
  }
};

/// −log of exponential numbers, which are above 0; computed in float32 for 16-bit logits.
Variable gumbel_like(const Variable& x) { return rounded(-log(exponential_like(widened(x))), x.dtype()); }

}  // namespace

Variable sparsemax(const Operand& x, int64_t axis) {
  const CallScope scope(x.where());
  const Variable& v = x.defined("sparsemax");
  const int64_t a = axis_of(v, axis, "sparsemax", x.where());
  const Variable rows = exchange_last_axis(v, a);
  return exchange_last_axis(apply(shared_op<Sparsemax>(), {&rows}, x.where()), a);
}

Variable gumbel_softmax(const Operand& logits, const GumbelSoftmaxOptions& options) {
  const CallScope scope(logits.where());
  const Variable& v = logits.defined("gumbel_softmax");
  located(logits.where(), [&] {
    check_dtype<Reals>({v.dtype(), v.shape()}, "gumbel_softmax");
    if (!(options.temperature > 0))
      throw Error(
          fmt::format("gumbel_softmax: the temperature is {}; it must be above 0", options.temperature));
  });
  const int64_t a = axis_of(v, options.axis, "gumbel_softmax", logits.where());
  const Variable x = exchange_last_axis(v, a);
  const Variable soft = softmax((options.noise ? x + gumbel_like(x) : x) / options.temperature);
  if (!options.hard) return exchange_last_axis(soft, a);
  const Variable hard = one_hot(argmax(soft), x.shape()[-1], x.dtype());
  return exchange_last_axis(stop_gradient(hard - soft) + soft, a);
}

void add_simplex_ops(OpRegistry& ops) { ops.add<Sparsemax>(1); }

}  // namespace espalier
