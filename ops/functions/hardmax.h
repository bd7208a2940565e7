// The largest element of each row as 1.
#pragma once
#include <cstdint>

#include "espalier/core/variable.h"

namespace espalier {

/// 1 at the first largest element along an axis, a NaN being the largest, and 0 elsewhere, in the shape and
/// dtype of `x`. For reals. ONNX's Hardmax. Without a gradient. ShapeError for an empty axis.
Variable hardmax(const Operand& x, int64_t axis = -1);

}  // namespace espalier
