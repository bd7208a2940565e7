// The step of a scan as a graph of its own.
#pragma once
#include "espalier/executor/graph/graph.h"
#include "espalier/ops/loop/loop_body.h"

namespace espalier {

/// The nodes of a scan's step, of that tag, for operands of the scan of these specs. The first ones are the
/// inputs of the body; results are its outputs. It is read, not run.
Graph graph_of_step(const LoopBody& body, const InputSpecs& operands, Tag tag);

}  // namespace espalier
