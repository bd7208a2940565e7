// Normalization, composed of other operations, which have gradients and which plans can fuse.
#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"

namespace espalier {

Variable layer_norm(const Operand& x, const Operand& gain, const Operand& bias, double epsilon) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& v = x.defined("layer_norm");
    if (v.rank() == 0) throw ShapeError("layer_norm: a scalar has no axis to be normalized along");
    if (!(epsilon > 0)) throw Error(fmt::format("layer_norm: epsilon is {}; it must be above 0", epsilon));
    const Variable centered = v - mean(v, -1, true);
    const Variable deviation = sqrt(mean(square(centered), -1, true) + epsilon);
    return centered / deviation * gain + bias;
  });
}

}  // namespace espalier
