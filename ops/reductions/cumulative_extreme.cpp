// Cumulative maxima, minima and log Σ exp along the last axis.
#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/scan.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/reductions/linear_scan.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/selecting_op.h"

namespace espalier {

namespace {

template <bool largest>
struct CumulativeExtreme : SelectingOp {
  std::string_view name() const override { return largest ? "cummax" : "cummin"; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    return SelectingOp::infer(in);
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    const int64_t n = x.shape()[-1];
    if (x.elements() == 0) return;
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Numbers::accepts<T>) {
        const T* in = static_cast<const T*>(x.address());
        T* values = detail::output<T>(call);
        int64_t* indices = detail::output<int64_t>(call, 1);
        for_each_row(x.shape(), 1, [=](int64_t at) { row(in + at, values + at, indices + at, n); });
      }
    });
  }

 private:
  template <class T>
  static void row(const T* in, T* values, int64_t* indices, int64_t n) {
    T best = in[0];
    int64_t at = 0;
    for (int64_t i = 0; i < n; ++i) {
      const T x = in[i];
      if (!(largest ? x <= best : x >= best) && best == best) {  // a NaN is neither
        best = x;
        at = i;
      }
      values[i] = best;
      indices[i] = at;
    }
  }
};

struct LogCumsumExp : RowOp {
  LogCumsumExp() : RowOp({.in_place = InputSet::all(), .gradient_reads_output = true}) {}
  std::string_view name() const override { return "logcumsumexp"; }
  void run_cpu(const KernelCall& call) const override {
    const Tensor x = call.inputs[0]->contiguous_copy();
    const int64_t n = x.shape()[-1];
    if (x.elements() == 0) return;
    visit(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* in = static_cast<const T*>(x.address());
        T* out = detail::output<T>(call);
        for_each_row(x.shape(), 16, [=](int64_t at) { row(in + at, out + at, n); });
      }
    });
  }
  /// dx[k] = exp(x[k] − y[k]) · h[k], where h[k] = g[k] + exp(y[k] − y[k + 1]) · h[k + 1]. No exponent is
  /// above 0, since y increases. Where y is −∞ the exponents take 0 for it.
  Gradients gradient(const GradientRule& rule) const override {
    const Variable x = rule.input(), y = rule.output();
    const double infinity = std::numeric_limits<double>::infinity();
    const Variable finite = where(equal(y, full_like(y, -infinity)), zeros_like(y), y);
    const Variable ratio = exp(shift_by_one(y, false, -infinity) - finite);
    return {exp(x - finite) * linear_scan(ratio, rule.output_gradient(), {.reverse = true, .lagged = true})};
  }

 private:
  /// Blocks with a common maximum, so that the loops over exponentials and logarithms are vectorized. In
  /// float64 a term may be e^−700 of the largest one.
  template <class T>
  static void row(const T* in, T* out, int64_t n) {
    constexpr int64_t block = 256;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    double before = -infinity, sums[block];
    for (int64_t begin = 0; begin < n; begin += block) {
      const int64_t count = std::min(block, n - begin);
      const T* x = in + begin;
      double largest = before, first = std::max(before, static_cast<double>(x[0]));
      bool regular = first > -infinity;
      for (int64_t i = 0; i < count; ++i) {
        largest = std::max(largest, static_cast<double>(x[i]));
        regular &= x[i] == x[i];
      }
      T* y = out + begin;
      if (!regular || !(largest < infinity) || largest - first > 600) {
        for (int64_t i = 0; i < count; ++i) {
          before = log_sum(before, static_cast<double>(x[i]));
          y[i] = static_cast<T>(before);
        }
        continue;
      }
      double* sum = sums;
      vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
        for (int64_t i = 0; i < count; ++i) sum[i] = scalar::Exp()(static_cast<double>(x[i]) - largest);
      });
      double total = std::exp(before - largest);
      for (int64_t i = 0; i < count; ++i) sums[i] = total += sums[i];
      vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
        for (int64_t i = 0; i < count; ++i) y[i] = static_cast<T>(largest + scalar::Log()(sum[i]));
      });
      before = largest + std::log(total);
    }
  }
  static double log_sum(double a, double b) {
    if (a != a || b != b) return a + b;
    const double high = std::max(a, b), low = std::min(a, b);
    return std::isinf(high) ? high : high + std::log1p(std::exp(low - high));
  }
};

}  // namespace

ValuesAndIndices cummax(const Operand& x, int64_t axis) {
  return select_along<ValuesAndIndices>(shared_op<CumulativeExtreme<true>>(), x, axis);
}
ValuesAndIndices cummin(const Operand& x, int64_t axis) {
  return select_along<ValuesAndIndices>(shared_op<CumulativeExtreme<false>>(), x, axis);
}
Variable logcumsumexp(const Operand& x, int64_t axis) {
  const Variable& v = x.defined("logcumsumexp");
  const CallScope scope(x.where());
  const int64_t a = axis_of(v, axis, "logcumsumexp", x.where());
  const Variable last = exchange_last_axis(v, a);
  return exchange_last_axis(apply(shared_op<LogCumsumExp>(), {&last}, x.where()), a);
}

void add_cumulative_extreme_ops(OpRegistry& ops) {
  ops.add<CumulativeExtreme<true>, CumulativeExtreme<false>, LogCumsumExp>(1);
}

}  // namespace espalier
