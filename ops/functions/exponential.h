// Elementwise powers, exponentials and logarithms.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// 1 / √x.
Variable rsqrt(const Operand& x);
/// 1 / x.
Variable reciprocal(const Operand& x);
/// x³, for all numbers.
Variable cube(const Operand& x);
/// 2 to the power of x.
Variable exp2(const Operand& x);
/// eˣ − 1, with all digits for small x.
Variable expm1(const Operand& x);
/// log(1 + x), with all digits for small x.
Variable log1p(const Operand& x);
Variable log2(const Operand& x);
Variable log10(const Operand& x);
/// log(eᵃ + eᵇ), without overflow. Where it crosses 0, terms cancel: floats are then within 5·10⁻⁹ of it.
Variable logaddexp(const Operand& a, const Operand& b);

}  // namespace espalier
