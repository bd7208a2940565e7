// Ops made again from their names and attributes, held against those they are made from.
#pragma once
#include "espalier/executor/graph/graph.h"

namespace espalier::testing {

/// Makes each op of a graph again, which must be equal, and give the same shapes and the same bits. Returns
/// the names of those that cannot be made again since they have state beside their attributes.
std::vector<std::string> check_remade(const Graph& graph);

}  // namespace espalier::testing
