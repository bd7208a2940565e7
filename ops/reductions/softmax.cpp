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
          run<Rows>(static_cast<T*>(out), static_cast<const T*>(a), 1, n);
        };
      else
        return nullptr;
    });
  }
  template <class Rows>
  static void run_rows(const KernelCall& call) {
    const Tensor in = call.inputs[0]->contiguous_copy();
    const int64_t n = in.shape()[-1];
    if (in.elements() == 0) return;
    visit(in.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Reals::accepts<T>) {
        const T* from = static_cast<const T*>(in.address());
        T* to = detail::output<T>(call);
        parallel_for(
            in.elements() / n, std::max<int64_t>(1, detail::grain / (4 * n)),
            [=](int64_t begin, int64_t end) { run<Rows>(to + begin * n, from + begin * n, end - begin, n); });
      }
    });
  }

 private:
  /// Rows::finish makes the results of exp(x - max), which is in `out`, and of what Rows::of_sum makes of its
  /// sum.
  template <class Rows, class T>
  static void run(T* out, const T* in, int64_t rows, int64_t n) {
    constexpr int64_t fewest = 8, longest = 512;  // `many` longer ones leave the cache
    if (rows >= fewest && n >= detail::lanes && n <= longest) return run_many<Rows>(out, in, rows, n);
    for (int64_t r = 0; r < rows; ++r) run_row<Rows>(out + r * n, in + r * n, n);
  }
  template <class Rows, class T>
  static void run_row(T* out, const T* in, int64_t n) {
    const T best = detail::extreme_row<scalar::Maximum>(in, n);
    vectorized([=]() __attribute__((always_inline)) { write_exp(out, in, n, best); });
    const T sum = detail::sum_row(out, n, 1);
    vectorized([=]() __attribute__((always_inline)) { Rows::finish(out, in, n, best, Rows::of_sum(sum)); });
  }
  /// Each step for many rows, which do not wait for each other.
  template <class Rows, class T>
  static void run_many(T* out, const T* in, int64_t rows, int64_t n) {
    constexpr int64_t many = detail::many;
    vectorized([=]() __attribute__((always_inline)) {
      T best[detail::last][many] = {}, sums[detail::last][many] = {};
      for (int64_t begin = 0; begin < rows; begin += many) {
        const int64_t count = std::min(many, rows - begin);
        const T* x = in + begin * n;
        T* y = out + begin * n;
        for (int64_t r = 0; r < count; ++r)
          detail::extremes_in_lanes<scalar::Maximum, detail::last>(x + r * n, n, best[0] + r, many);
        detail::fold_many<scalar::Maximum>(best);
        for (int64_t r = 0; r < count; ++r) write_exp(y + r * n, x + r * n, n, best[0][r]);
        for (int64_t r = 0; r < count; ++r)
          detail::sums_in_lanes<detail::Itself, detail::last>(y + r * n, n, sums[0] + r, many);
        detail::fold_many<scalar::Add>(sums);
        for (int64_t r = 0; r < many; ++r) sums[0][r] = Rows::of_sum(sums[0][r]);
        for (int64_t r = 0; r < count; ++r) Rows::finish(y + r * n, x + r * n, n, best[0][r], sums[0][r]);
      }
    });
  }
  template <class T>
  [[gnu::always_inline]] static void write_exp(T* out, const T* in, int64_t n, T shift) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = scalar::Exp()(in[i] - shift);
  }
};

/// exp(x - max) / Σ exp(x - max)
struct Softmax : SoftmaxOp {
  Softmax() : SoftmaxOp(InputSet::all()) {}
  std::string_view name() const override { return "softmax"; }
  template <class T>
  [[gnu::always_inline]] static T of_sum(T sum) {
    return 1 / sum;
  }
  template <class T>
  [[gnu::always_inline]] static void finish(T* out, const T*, int64_t n, T, T scale) {
    for (int64_t i = 0; i < n; ++i) out[i] *= scale;
  }
  ElementLoops loops(const InputSpecs& in) const override { return {.whole_row = whole_row<Softmax>(in)}; }
  void run_cpu(const KernelCall& call) const override { run_rows<Softmax>(call); }
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
  [[gnu::always_inline]] static T of_sum(T sum) {
    return scalar::Log()(sum);
  }
  template <class T>
  [[gnu::always_inline]] static void finish(T* out, const T* in, int64_t n, T best, T log_sum) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      out[i] = in[i] - best - log_sum;  // best + log_sum would lose bits of log_sum
  }
  ElementLoops loops(const InputSpecs& in) const override { return {.whole_row = whole_row<LogSoftmax>(in)}; }
  void run_cpu(const KernelCall& call) const override { run_rows<LogSoftmax>(call); }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    return {g - exp(rule.output()) * sum(g, -1, true)};
  }
};

template <class T>
Variable along(const Operand& x, int64_t axis, std::string_view name) {
  const Variable& v = x.defined(name);
  const CallScope scope(x.where(), name);
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
