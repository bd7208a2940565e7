// The leaves that stand for the operands of a loop's step while it is written down.
#pragma once
#include "espalier/core/node.h"

namespace espalier {

/// A leaf of that spec without a value: reading it, or what depends on it, throws UnsupportedError.
Variable loop_operand(const Spec& spec, Device device);
bool is_loop_operand(const Op& op);

}  // namespace espalier
