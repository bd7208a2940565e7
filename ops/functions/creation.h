// Conversions, constants in the shape of another Variable, and constants for derivatives.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// Converts elements to `dtype`. Reals are truncated to integers, clamped to the range; NaN becomes 0.
Variable cast(const Operand& x, DType dtype);

/// `x`, through which no gradient passes: derivatives of all orders take it for a constant. A view, which
/// costs nothing in a plan.
Variable stop_gradient(const Operand& x);

// Constants in the shape of another Variable, whatever that shape is in a step.
/// Everywhere `value`, a number that the dtype of `x` has (TypeError), or a scalar of that dtype.
Variable full_like(const Operand& x, const Operand& value);
Variable zeros_like(const Operand& x);
Variable ones_like(const Operand& x);

}  // namespace espalier
