// check_empty_operands: an op whose operands have axes without elements.
#pragma once
#include "espalier/core/device.h"
#include "testing.h"

namespace espalier::testing {

/// Makes all axes of one size empty, for each size that the operands of the case have. Either the op refuses
/// that by an Error, or it has a result, which is that of a plan and of each vector level, and on a GPU that
/// of the CPU; its gradients by the inputs in `differentiable` have their shapes.
void check_empty_operands(const OpCase& c, const std::vector<size_t>& differentiable, Device device);

}  // namespace espalier::testing
