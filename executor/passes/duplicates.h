// Cheap work of one kernel that others do again, where that moves fewer bytes than storing its results.
// Values between the parts of a batch normalization are then computed from its operand in each part, and
// neither stored nor kept for the gradient.
#pragma once
#include <vector>

#include "espalier/executor/passes/clusters.h"

namespace espalier {

/// By cluster: the nodes of others that its kernel computes, too, in the order of the graph. They are maps of
/// full extent, over the domain of the cluster. A member of the cluster that reads one of them, but not
/// through a view, reads the copy.
using Duplicates = std::vector<std::vector<uint32_t>>;

/// On a CPU there are none.
Duplicates find_duplicates(const Graph& graph, const Clustering& clustering);

}  // namespace espalier
