// Elementwise trigonometric and hyperbolic functions, for reals; angles are in radians.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

Variable tan(const Operand& x);
/// NaN outside [−1, 1].
Variable asin(const Operand& x);
Variable acos(const Operand& x);
Variable atan(const Operand& x);
/// The angle of the point (x, y), from −π to π. Its gradient at the origin is NaN.
Variable atan2(const Operand& y, const Operand& x);
/// √(a² + b²), without overflow of the squares. Its gradient at the origin is NaN.
Variable hypot(const Operand& a, const Operand& b);
Variable sinh(const Operand& x);
Variable cosh(const Operand& x);
Variable asinh(const Operand& x);
/// NaN below 1.
Variable acosh(const Operand& x);
/// NaN outside [−1, 1].
Variable atanh(const Operand& x);

}  // namespace espalier
