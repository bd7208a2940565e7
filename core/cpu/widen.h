// Ops on 16-bit reals, computed by the float32 kernels.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

/// Whether a call reads or writes 16-bit reals with an op that does not take them as they are.
bool needs_widening(const Op& op, const KernelCall& call);

/// Runs the op on float32 copies of 16-bit operands, and rounds what it computes.
void run_widened(const Op& op, const KernelCall& call);

}  // namespace espalier
