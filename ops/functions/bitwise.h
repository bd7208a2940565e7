// Operations on bits, and exclusive or.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// For bools: whether exactly one is true.
Variable logical_xor(const Operand& a, const Operand& b);

// For integers, and bools, of which they are and, or, exclusive or, and not.
Variable bitwise_and(const Operand& a, const Operand& b);
Variable bitwise_or(const Operand& a, const Operand& b);
Variable bitwise_xor(const Operand& a, const Operand& b);
Variable bitwise_not(const Operand& x);

// For integers. A shift by less than 0 or by all bits leaves nothing: 0, or -1 of a negative number to the
// right.
/// a · 2ⁿ, without the bits that leave the number.
Variable bitwise_left_shift(const Operand& a, const Operand& n);
/// a / 2ⁿ, rounded down.
Variable bitwise_right_shift(const Operand& a, const Operand& n);

}  // namespace espalier
