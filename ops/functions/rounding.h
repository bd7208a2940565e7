// Elementwise rounding, divisions with integer quotients, bounds, and what is no finite number.
#pragma once
#include <optional>

#include "espalier/core/variable.h"

namespace espalier {

// For all numbers; integers stay as they are. The gradient is 0.
Variable ceil(const Operand& x);
/// To the nearest integer; ties go to the even one.
Variable round(const Operand& x);
/// Towards 0.
Variable trunc(const Operand& x);
/// x − trunc(x), for reals.
Variable frac(const Operand& x);

// For all numbers. An integer divided by zero gives the quotient 0 and the rest 0.
/// The integer at or below a / b, as a // b in Python. Its gradient is 0.
Variable floor_divide(const Operand& a, const Operand& b);
/// a − b · floor_divide(a, b), as a % b in Python: it has the sign of b.
Variable remainder(const Operand& a, const Operand& b);
/// The rest of a division that is cut off towards 0, as in C: it has the sign of a.
Variable fmod(const Operand& a, const Operand& b);

// For all numbers; NaN stays. The gradient passes to `x` where it is within the bounds, ends included, and
// elsewhere to the bound.
Variable clamp(const Operand& x, const Operand& low, const Operand& high);
Variable clamp_min(const Operand& x, const Operand& low);
Variable clamp_max(const Operand& x, const Operand& high);
/// a + weight · (b − a), for reals; with the weights 0 and 1 exactly a and b.
Variable lerp(const Operand& a, const Operand& b, const Operand& weight);
/// 0 for x < 0, 1 for x > 0, and `at_zero` at 0, for all numbers. Its gradient is 0.
Variable heaviside(const Operand& x, const Operand& at_zero);

// For all numbers; return bool.
Variable isnan(const Operand& x);
Variable isinf(const Operand& x);
Variable isposinf(const Operand& x);
Variable isneginf(const Operand& x);
Variable isfinite(const Operand& x);
/// `x` with numbers in place of NaN and infinities: without other values, the largest and the smallest finite
/// number of the dtype. No gradient passes where one is replaced. Integers stay as they are.
Variable nan_to_num(const Operand& x, double nan = 0, std::optional<double> infinity = {},
                    std::optional<double> negative_infinity = {});

}  // namespace espalier
