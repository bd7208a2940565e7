// The ops of scans, for what writes, reads and rewrites trees.
#pragma once
#include "espalier/core/op.h"
#include "espalier/ops/loop/scan_run.h"

namespace espalier {

/// A loop over a finished body, which has at least one sequence.
OpPtr scan_op(LoopBodyPtr body, ScanForm form);
/// The body of a scan; null for other ops.
LoopBodyPtr loop_body_of(const Op& op);
ScanForm scan_form_of(const Op& scan);
/// Whether an op is a scan, or a part of one.
bool is_loop(const Op& op);

/// Runs a call of a scan, or of the gradient of one, so that something sees its steps. False for other ops.
bool watch_steps(const Op& op, const KernelCall& call, StepWatch watch);
/// The part of it for `checkpointed_scan_op`.
bool watch_checkpointed(const Op& op, const KernelCall& call, StepWatch watch);

/// The gradient of a scan that keeps the states of every `stride`-th step alone. Inputs and outputs are those
/// of a scan of `body`, which is the gradient of another (`gradient_of`), in this direction; the states in
/// front of its steps are those that are kept.
OpPtr checkpointed_scan_op(LoopBodyPtr body, bool reverse, int64_t stride);

}  // namespace espalier
