// The leaves that stand for the operands of a loop's step while it is written down.
#pragma once
#include "espalier/core/node.h"

namespace espalier {

/// A leaf of that spec without a value: reading it, or what depends on it, throws UnsupportedError.
Variable loop_operand(const Spec& spec, Device device);
/// The same of the spec of `x`, or of its rows, and with its open axes.
Variable loop_operand_like(const Variable& x, bool row = false);
bool is_loop_operand(const Op& op);

}  // namespace espalier
