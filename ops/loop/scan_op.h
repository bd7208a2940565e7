// The op of a scan, for what writes and reads trees.
#pragma once
#include "espalier/core/op.h"
#include "espalier/ops/loop/loop_body.h"

namespace espalier {

/// A loop over a finished body, which has at least one sequence.
OpPtr scan_op(LoopBodyPtr body, bool reverse, bool keeps_states);
/// The body of a scan; null for other ops.
LoopBodyPtr loop_body_of(const Op& op);

}  // namespace espalier
