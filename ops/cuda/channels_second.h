// Ops whose channels are the last axis, by kernels for channels before the axes of places.
#pragma once
#include <functional>
#include <initializer_list>

#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

/// Binds an op with the attribute `channels_last` to the kernel of the op without it, which gets views of the
/// inputs and an output that each run copies. `axes`: the number of axes of places. `kept`: the inputs whose
/// axes have the same order in both. `keeps_output`: so has the result.
Bound bind_channels_second(const Op& op, const KernelCall& call, size_t axes,
                           std::initializer_list<size_t> kept, bool keeps_output,
                           const std::function<Bound(const Op&, const KernelCall&)>& bind);

}  // namespace espalier::cu
