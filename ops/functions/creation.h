// Conversions, constants in the shape of another Variable, and constants for derivatives.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// Converts elements to `dtype`. Reals are truncated to integers, clamped to the range; NaN becomes 0.
Variable cast(const Operand& x, DType dtype);

/// `x`, which derivatives of all orders take for a constant. A view, which costs nothing in a plan. It keeps
/// what is behind it: a state that a loop carries on lets go of that by value() or disconnect().
Variable stop_gradient(const Operand& x);

// Constants in the shape of another Variable, whatever that shape is in a step.
/// Everywhere `value`, a number that the dtype of `x` has (TypeError), or a scalar of that dtype.
Variable full_like(const Operand& x, const Operand& value);
Variable zeros_like(const Operand& x);
Variable ones_like(const Operand& x);

// What depends on the number of entries along an axis, however many a step has: below a feed, or with open
// axes, `x.shape()` has those of a full batch, or none yet.
/// Their number, a scalar: of x's dtype if that is real, of int64 else.
Variable axis_size(const Operand& x, int64_t axis);
/// 0, 1, 2, … for the entries, [number].
Variable arange_like(const Operand& x, int64_t axis, DType dtype = int64);

}  // namespace espalier
