// Comparisons, logic, and selection by a condition.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

// Comparisons return bool; `where` selects from `a` where the condition holds and from `b` elsewhere.
Variable equal(const Operand& a, const Operand& b);
Variable not_equal(const Operand& a, const Operand& b);
Variable less(const Operand& a, const Operand& b);
Variable less_equal(const Operand& a, const Operand& b);
Variable greater(const Operand& a, const Operand& b);
Variable greater_equal(const Operand& a, const Operand& b);
Variable logical_and(const Operand& a, const Operand& b);
Variable logical_or(const Operand& a, const Operand& b);
Variable logical_not(const Operand& x);
Variable where(const Operand& condition, const Operand& a, const Operand& b);

}  // namespace espalier
