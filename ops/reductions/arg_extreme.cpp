// The positions of extreme elements along an axis.
#include <algorithm>
#include <type_traits>

#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/reduction.h"
#include "espalier/ops/functions/statistics.h"
#include "espalier/ops/kept_op.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/reductions/reduce.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

template <bool largest>
struct ArgExtreme : Op {
  explicit ArgExtreme(int64_t axis) : Op({.gradient_reads = InputSet::none()}), axis_(axis) {}
  std::string_view name() const override { return largest ? "argmax" : "argmin"; }
  Attributes attributes() const override { return {{"axis", axis_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    if (in[0]->shape.dims()[resolve_axis(axis_, in[0]->shape.rank(), name())] == 0)
      throw ShapeError(fmt::format("{}: axis {} of shape {} is empty", name(), axis_, in[0]->shape.str()));
    Dims dims = in[0]->shape.dims();
    dims.erase(resolve_axis(axis_, dims.size(), name()));
    return {{DType::int64, Shape(std::move(dims))}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor& in = *call.inputs[0];
    const size_t axis = resolve_axis(axis_, in.rank(), name());
    const int64_t n = in.shape().dims()[axis], step = in.strides()[axis];
    const Tensor first = in.slice(axis_, 0, 1);
    Layout out(call.outputs[0]->shape());
    out.strides.insert(axis, 0);
    visit(in.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (Numbers::accepts<T>) {
        const T* data = static_cast<const T*>(first.address());
        int64_t* result = detail::output<int64_t>(call);
        StridedLoop<2>(first.shape(), {&out.strides, &first.strides()})
            .run([&](int64_t count, auto at, auto by) {
              if (by[1] == 1 && by[0] == 1 && step != 1)
                return in_columns(data + at[1], result + at[0], count, n, step);
              for (int64_t i = 0; i < count; ++i) {
                const T* row = data + at[1] + i * by[1];
                result[at[0] + i * by[0]] = step == 1 ? in_row(row, n) : in_strided_row(row, n, step);
              }
            });
      }
    });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }

 private:
  /// Whether x takes the place of the best so far: a NaN is before all numbers.
  template <class T>
  static bool better(T x, T best) {
    return (largest ? x > best : x < best) || (x != x && best == best);
  }
  template <class T>
  static int64_t in_strided_row(const T* row, int64_t n, int64_t step) {
    int64_t best = 0;
    for (int64_t k = 1; k < n; ++k)
      if (better(row[k * step], row[best * step])) best = k;
    return best;
  }
  /// Adjacent outputs together, for each of which elements are `step` apart.
  template <class T>
  static void in_columns(const T* in, int64_t* out, int64_t count, int64_t n, int64_t step) {
    constexpr int64_t most = 512;  // columns whose extremes stay in the first-level cache
    T bests[most];
    for (int64_t left = 0; left < count; left += most) {
      const int64_t width = std::min(most, count - left);
      std::copy_n(in + left, width, bests);
      std::fill_n(out + left, width, int64_t{0});
      for (int64_t k = 1; k < n; ++k) {
        const T* row = in + k * step + left;
        for (int64_t i = 0; i < width; ++i) {
          const bool found = better(row[i], bests[i]);
          out[left + i] = found ? k : out[left + i];
          bests[i] = found ? row[i] : bests[i];
        }
      }
    }
  }
  /// Finds the block that has the extreme element, by vectorized loops, and then its position there.
  template <class T>
  static int64_t in_row(const T* row, int64_t n) {
    using Pick = std::conditional_t<largest, scalar::Maximum, scalar::Minimum>;
    constexpr int64_t block = 1024;
    int64_t begin = 0;
    T best = row[0];
    for (int64_t i = 0; i < n; i += block)
      if (const T x = detail::extreme_row<Pick>(row + i, std::min(block, n - i)); better(x, best)) {
        best = x;
        begin = i;
      }
    while (!(row[begin] == best || (best != best && row[begin] != row[begin]))) ++begin;
    return begin;
  }

  int64_t axis_;
};
using Argmax = ArgExtreme<true>;
using Argmin = ArgExtreme<false>;

}  // namespace

Variable argmax(const Operand& x, int64_t axis) {
  return apply(kept_op<Argmax>(axis), {&x.variable()}, x.where());
}
Variable argmin(const Operand& x, int64_t axis) {
  return apply(kept_op<Argmin>(axis), {&x.variable()}, x.where());
}

void add_arg_extreme_ops(OpRegistry& ops) {
  ops.add("argmax", 1, [](AttributeReader& a) { return std::make_shared<Argmax>(a.integer("axis")); });
  ops.add("argmin", 1, [](AttributeReader& a) { return std::make_shared<Argmin>(a.integer("axis")); });
}

}  // namespace espalier
