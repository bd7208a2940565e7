// Normalization, composed of other operations, which have gradients and which plans can fuse.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/open_note.h"
#include "espalier/core/values_later.h"
#include "espalier/ops/elementwise/arithmetic.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/reductions/reduce.h"

namespace espalier {

namespace {

/// Gain and bias are of the type of `x` and do not give the result another shape than that of `x`.
void check_keeps(const Operand& factor, const Variable& x) {
  if (factor.is_number()) return;
  const Variable& f = factor.defined("layer_norm");
  if (f.dtype() != x.dtype())
    throw TypeError(fmt::format("layer_norm: a gain or bias of {} does not go with {}; cast() one of them",
                                name(f.dtype()), name(x.dtype())));
  bool keeps = f.rank() <= x.rank();
  for (size_t i = 1; keeps && i <= f.rank(); ++i) {
    const int64_t size = f.shape()[-static_cast<int64_t>(i)];
    keeps = size == 1 || size == x.shape()[-static_cast<int64_t>(i)];
  }
  if (!keeps)
    throw ShapeError(fmt::format("layer_norm: a gain or bias of shape {} does not go with rows of shape {}{}",
                                 f.shape().str(), x.shape().str(), open_note(f.shape(), x.shape())));
}

/// The mean of each row. What the sum lost to rounding is in the mean of the differences, so that equal
/// elements have exactly their mean. Its derivative is that of the first mean.
Variable exact_mean(const Variable& x) {
  const Variable rounded = mean(x, -1, true);
  return rounded + stop_gradient(mean(x - rounded, -1, true));
}

/// The sum of Map()(row[i]), in blocks as sum_row has them.
template <class Map, class T>
[[gnu::always_inline]] inline T row_sum(const T* row, int64_t n) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += detail::sum_block)
    total +=
        static_cast<double>(detail::sum_in_lanes<Map>(row + begin, std::min(detail::sum_block, n - begin)));
  return static_cast<T>(total);
}

/// A row of layer_norm, as the composition computes it.
template <class T>
[[gnu::always_inline]] inline void normalize_row(const T* x, int64_t n, const T* gain, const T* bias,
                                                 T epsilon, T* out) {
  const T count = static_cast<T>(n), rounded = row_sum<detail::Itself>(x, n) / count;
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] - rounded;
  const T mean = rounded + row_sum<detail::Itself>(out, n) / count;
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] - mean;
  const T deviation = std::sqrt(row_sum<scalar::Square>(out, n) / count + epsilon);
  for (int64_t i = 0; i < n; ++i) out[i] = out[i] / deviation * gain[i] + bias[i];
}

void normalize_rows(const Tensor& x, const Tensor& gain, const Tensor& bias, double epsilon, Tensor& out) {
  const int64_t n = x.shape()[-1], rows = n ? x.elements() / n : 0;
  visit(x.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_floating_point_v<T>) {
      const T *from = static_cast<const T*>(x.address()), *factor = static_cast<const T*>(gain.address()),
              *term = static_cast<const T*>(bias.address());
      T* const to = static_cast<T*>(out.address());
      parallel_for(rows, std::max<int64_t>(1, detail::grain / std::max<int64_t>(n, 1)),
                   [=](int64_t begin, int64_t end) {
                     vectorized([=]() __attribute__((always_inline)) {
                       for (int64_t r = begin; r < end; ++r)
                         normalize_row(from + r * n, n, factor, term, static_cast<T>(epsilon), to + r * n);
                     });
                   });
    }
  });
}

/// Rows times a gain plus a bias. Where no gradient will be asked for, an eager one on the CPU is computed
/// row by row.
Variable normalized(const Variable& x, const Variable& gain, const Variable& bias, double epsilon,
                    const std::source_location& where) {
  const auto scaled = [&] {
    const Variable centered = x - exact_mean(x);
    const Variable deviation = sqrt(mean(square(centered), -1, true) + epsilon);
    return centered / deviation * gain;
  };
  const Shape row{x.shape()[-1]};
  const bool no_gradient =
      build_context().no_grad ||
      !(x.node()->needs_gradient || gain.node()->needs_gradient || bias.node()->needs_gradient);
  if (!no_gradient || !(gain.shape() == row) || !(bias.shape() == row) || !is_eager_on_cpu(x) ||
      !is_eager_on_cpu(gain) || !is_eager_on_cpu(bias))
    return scaled() + bias;
  const Variable before = [&] {
    const ValuesLater later;
    return scaled();
  }();
  const auto compute = [&](Tensor& out) {
    normalize_rows(x.value().contiguous_copy(), gain.value().contiguous_copy(),
                   bias.value().contiguous_copy(), epsilon, out);
  };
  return apply_by(compute, add_op(), {&before, &bias}, where);
}

}  // namespace

Variable layer_norm(const Operand& x, const Operand& gain, const Operand& bias, double epsilon) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& v = x.defined("layer_norm");
    if (v.rank() == 0) throw ShapeError("layer_norm: a scalar has no axis to be normalized along");
    if (!(epsilon > 0)) throw Error(fmt::format("layer_norm: epsilon is {}; it must be above 0", epsilon));
    for (const Operand* factor : {&gain, &bias}) check_keeps(*factor, v);
    // 16-bit rows are computed in float32, and the result is rounded once.
    const bool half = is_half(v.dtype());
    const auto wide = [&](const Variable& a) { return half ? cast(a, float32) : a; };
    const Variable result = normalized(wide(v), wide(gain.like(v)), wide(bias.like(v)), epsilon, x.where());
    return half ? cast(result, v.dtype()) : result;
  });
}

}  // namespace espalier
