// The order of batches: which nodes are computed together.
#pragma once
#include <vector>

#include "espalier/core/deferred/deferred.h"
#include "espalier/core/deferred/waiting_graph.h"

namespace espalier {

/// Lists of nodes of one group of kinds, each behind those that it reads; every node that has not been
/// dropped is in one.
std::vector<std::vector<uint32_t>> batches_of(const WaitingGraph& graph, const NodeKinds& kinds,
                                              BatchPolicy policy);

}  // namespace espalier
