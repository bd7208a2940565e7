// Elementwise special functions, for reals.
#pragma once
#include <cstdint>

#include "espalier/core/variable.h"

namespace espalier {

/// log |Γ(x)|; infinite at 0 and negative integers.
Variable lgamma(const Operand& x);
/// ψ(x), the derivative of lgamma: infinite at 0, NaN at negative integers.
Variable digamma(const Operand& x);
/// The derivative of ψ of order `n`. For n > 2 it is NaN below 0. Throws Error for a negative order.
Variable polygamma(int64_t n, const Operand& x);
/// 1 − erf(x), with all digits where erf is near 1.
Variable erfc(const Operand& x);
/// The inverse of erf: NaN outside [−1, 1].
Variable erfinv(const Operand& y);
/// sin(πx) / (πx), and 1 at 0.
Variable sinc(const Operand& x);
/// x log(y), and 0 where x is 0, unless y is NaN.
Variable xlogy(const Operand& x, const Operand& y);

}  // namespace espalier
