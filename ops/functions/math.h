// Elementwise arithmetic and elementary functions.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

// Elementwise arithmetic, also as a + b, a - b, a * b, a / b and -a. Division is for reals.
Variable add(const Operand& a, const Operand& b);
Variable subtract(const Operand& a, const Operand& b);
Variable multiply(const Operand& a, const Operand& b);
Variable divide(const Operand& a, const Operand& b);
Variable power(const Operand& base, const Operand& exponent);
Variable maximum(const Operand& a, const Operand& b);
Variable minimum(const Operand& a, const Operand& b);
Variable negative(const Operand& x);
Variable abs(const Operand& x);
Variable sign(const Operand& x);
Variable square(const Operand& x);
Variable sqrt(const Operand& x);
Variable exp(const Operand& x);
Variable log(const Operand& x);
/// The error function.
Variable erf(const Operand& x);
Variable sin(const Operand& x);
Variable cos(const Operand& x);
Variable floor(const Operand& x);

}  // namespace espalier
