// Cumulative operations along an axis.
#pragma once
#include "espalier/core/variable.h"
#include "espalier/ops/functions/values_and_indices.h"

namespace espalier {

// Element i of the result combines elements 0 to i along the axis. The shape and dtype are those of `x`.
/// Sums and products. Reals are accumulated in float64; integers wrap around.
Variable cumsum(const Operand& x, int64_t axis = -1);
Variable cumprod(const Operand& x, int64_t axis = -1);
/// log Σ exp(x), for reals; large elements do not overflow.
Variable logcumsumexp(const Operand& x, int64_t axis = -1);
/// The largest or smallest element, and the first position that has it; from the first NaN on, that NaN. The
/// gradient goes to these positions.
ValuesAndIndices cummax(const Operand& x, int64_t axis = -1);
ValuesAndIndices cummin(const Operand& x, int64_t axis = -1);

}  // namespace espalier
