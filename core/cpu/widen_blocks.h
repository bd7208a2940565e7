// Ops on 16-bit reals, computed in float32 a block at a time.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

/// What `run_widened` does, with float32 copies that stay in the innermost caches. False, and nothing is
/// done, but for pointwise ops of operands of one shape (or of one element), reductions to a scalar or of
/// each entry along the first axis, and ops of whole rows. Operands are contiguous.
bool run_widened_in_blocks(const Op& op, const KernelCall& call);

}  // namespace espalier
