// An affine map of rows, as layers have it.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// x·weightᵀ + bias: x [..., in] and weight [out, in] give [..., out]; a weight [in] gives [...]. An
/// undefined bias is none; else it is broadcast to the result, mostly [out]. ShapeError, TypeError.
Variable linear(const Operand& x, const Operand& weight, const Variable& bias = {});

}  // namespace espalier
