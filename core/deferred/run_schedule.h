// Computes a schedule: batches become nodes of an eager tree.
#pragma once
#include "espalier/core/deferred/schedule.h"

namespace espalier {

/// Computes all batches, gives each node of the graph that is done its `batch`, and lets go of it. Kinds
/// whose ops turn out to take no stacked inputs are marked, and `false` returned: the next schedule of such a
/// graph will be a better one. Throws what kernels throw, with the line of the node; nodes computed before
/// stay so.
bool run_schedule(const Schedule& schedule, WaitingGraph& graph, NodeKinds& kinds, EvaluationReport& report);

}  // namespace espalier
