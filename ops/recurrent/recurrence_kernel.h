// The kernels of a recurrence on a CPU: for each step a product with the weights, and one loop over its
// units.
#pragma once
#include "espalier/core/bind_context.h"
#include "espalier/ops/recurrent/recurrence_call.h"

namespace espalier {

/// Bound to tensors at fixed addresses. Scratch memory is of `context`, if that offers any.
std::unique_ptr<BoundKernel> bind_recurrence(const ForwardCall& call, const BindContext& context);
std::unique_ptr<BoundKernel> bind_recurrence(const BackwardCall& call, const BindContext& context);
/// The scratch memory of a kernel, on any device.
int64_t recurrence_workspace_bytes(const RecurrenceForm& form, const PlannedCall& call, bool backward);

}  // namespace espalier
