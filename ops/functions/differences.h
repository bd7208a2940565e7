// Differences and integrals along an axis of samples.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// x[i + 1] − x[i] along an axis, `n` times: each time there is an element less. PyTorch's diff; of bool it
/// is whether both differ. Error for a negative n.
Variable diff(const Operand& x, int64_t n = 1, int64_t axis = -1);

// The integral of samples `y` along an axis, without that axis, by the trapezoidal rule: 0 of fewer than two.
// Reals only.
/// Samples lie `dx` apart.
Variable trapezoid(const Operand& y, double dx = 1, int64_t axis = -1);
/// Samples lie at `x`: a vector of the size of the axis, or broadcast to the shape of `y`. ShapeError.
Variable trapezoid(const Operand& y, const Operand& x, int64_t axis = -1);

}  // namespace espalier
