// Normalization, composed of other operations, which have gradients and which plans can fuse.
#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"

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
    throw ShapeError(fmt::format("layer_norm: a gain or bias of shape {} does not go with rows of shape {}",
                                 f.shape().str(), x.shape().str()));
}

/// The mean of each row. What the sum lost to rounding is in the mean of the differences, so that equal
/// elements have exactly their mean. Its derivative is that of the first mean.
Variable exact_mean(const Variable& x) {
  const Variable rounded = mean(x, -1, true);
  return rounded + stop_gradient(mean(x - rounded, -1, true));
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
    const Variable wide_v = wide(v), centered = wide_v - exact_mean(wide_v);
    const Variable deviation = sqrt(mean(square(centered), -1, true) + epsilon);
    const Variable result = centered / deviation * wide(gain.like(v)) + wide(bias.like(v));
    return half ? cast(result, v.dtype()) : result;
  });
}

}  // namespace espalier
