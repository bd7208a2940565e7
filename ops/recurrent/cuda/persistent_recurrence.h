// Recurrences by one kernel for all steps, whose blocks keep the weights in shared memory.
#pragma once
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/recurrent/recurrence_call.h"

namespace espalier::cu {

/// Null where there is no such kernel: see the conditions in persistent_recurrence.cu.
Bound bind_persistent_recurrence(const ForwardCall& call, const BindContext& context);
Bound bind_persistent_recurrence(const BackwardCall& call, const BindContext& context);

}  // namespace espalier::cu
