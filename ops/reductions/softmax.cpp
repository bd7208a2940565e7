// Softmax and log-softmax along one axis.
#include <algorithm>
#include <cmath>

#include "espalier/core/op_registry.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/reductions/reduce.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/row_op.h"

namespace espalier {

namespace {

struct SoftmaxOp : RowOp {
  explicit SoftmaxOp(InputSet in_place)
      : RowOp({.in_place = in_place, .gradient_reads = InputSet::none(), .gradient_reads_output = true}) {}

 protected:
  template <class Rows>
  static UnaryRow whole_row(const InputSpecs& in) {
    if (is_half(in[0]->dtype)) return nullptr;
    return visit(in[0]->dtype, []<class T>(TypeTag<T>) -> UnaryRow {
      if constexpr (Reals::accepts<T>)
        return [](int64_t n, void* out, const void* a, int64_t) {
          Rows::row(static_cast<T*>(out), static_cast<const T*>(a), n);
        };
      else
        return nullptr;
    });
  }
  /// Calls `f(out row, in row, n)` for each row.
  template <class F>
  static void rows(const KernelCall& call, F&& f) {
    const Tensor in = call.inputs[0]->contiguous_copy();
    const int64_t n = in.shape()[-1];
    if (in.elements() == 0) return;
    visit(in.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* from = static_cast<const T*>(in.address());
        T* to = detail::output<T>(call);
        parallel_for(in.elements() / n, std::max<int64_t>(1, detail::grain / (4 * n)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t r = begin; r < end; ++r) f(to + r * n, from + r * n, n);
                     });
      }
    });
  }
  template <class T>
  static T largest(const T* row, int64_t n) {
    return detail::extreme_row<scalar::Maximum>(row, n);
  }
  /// Writes exp(x - shift) to `out` and returns the sum.
  template <class T>
  static T exp_row(T* out, const T* in, int64_t n, T shift) {
    vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) out[i] = scalar::Exp()(in[i] - shift);
    });
    return detail::sum_row(out, n, 1);
  }
};

/// exp(x - max) / Σ exp(x - max)
struct Softmax : SoftmaxOp {
  Softmax() : SoftmaxOp(InputSet::all()) {}
  std::string_view name() const override { return "softmax"; }
  template <class T>
  static void row(T* out, const T* in, int64_t n) {
    const T scale = 1 / exp_row(out, in, n, largest(in, n));
    vectorized([=]() __attribute__((always_inline)) {
      for (int64_t i = 0; i < n; ++i) out[i] *= scale;
    });
  }
  ElementLoops loops(const InputSpecs& in) const override { return {.whole_row = whole_row<Softmax>(in)}; }
  void run_cpu(const KernelCall& call) const override {
    rows(call, []<class T>(T* out, const T* in, int64_t n) { row(out, in, n); });
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable &g = rule.output_gradient(), y = rule.output();
    const Variable gy = g * y;
    return {gy - y * sum(gy, -1, true)};
  }
};

/// x - max - log Σ exp(x - max)
struct LogSoftmax : SoftmaxOp {
  LogSoftmax() : SoftmaxOp(InputSet::none()) {}
  std::string_view name() const override { return "log_softmax"; }
  template <class T>
  static void row(T* out, const T* in, int64_t n) {
    const T best = largest(in, n);
    const T log_sum = std::log(exp_row(out, in, n, best));
    vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i)
        out[i] = in[i] - best - log_sum;  // best + log_sum would lose bits of log_sum
    });
  }
  ElementLoops loops(const InputSpecs& in) const override { return {.whole_row = whole_row<LogSoftmax>(in)}; }
  void run_cpu(const KernelCall& call) const override {
    rows(call, []<class T>(T* out, const T* in, int64_t n) { row(out, in, n); });
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    return {g - exp(rule.output()) * sum(g, -1, true)};
  }
};

template <class T>
Variable along(const Operand& x, int64_t axis, std::string_view name) {
  const Variable& v = x.defined(name);
  const CallScope scope(x.where());
  const auto rank = static_cast<int64_t>(v.rank());
  const int64_t a =
      rank ? located(x.where(), [&] { return static_cast<int64_t>(resolve_axis(axis, v.rank(), name)); }) : 0;
  if (rank == 0 || a == rank - 1) return apply(shared_op<T>(), {&v}, x.where());
  Dims order;
  for (int64_t i = 0; i < rank; ++i) order.push_back(i);
  std::swap(order[static_cast<size_t>(a)], order[static_cast<size_t>(rank - 1)]);
  const Variable last = transpose(v, Axes(order));
  return transpose(apply(shared_op<T>(), {&last}, x.where()), Axes(order));
}

}  // namespace

Variable softmax(const Operand& x, int64_t axis) { return along<Softmax>(x, axis, "softmax"); }
Variable log_softmax(const Operand& x, int64_t axis) { return along<LogSoftmax>(x, axis, "log_softmax"); }

void add_softmax_ops(OpRegistry& ops) { ops.add<Softmax, LogSoftmax>(1); }

}  // namespace espalier
