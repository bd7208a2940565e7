// Nodes that read nothing of their inputs but the shapes, such as a number of rows.
#pragma once
#include "espalier/executor/graph/graph.h"

namespace espalier {

bool reads_shapes_alone(const GraphNode& n);

/// What such a node of a graph computes.
Tensor value_of_shapes(const Graph& graph, const GraphNode& n);

/// Whether such a node, the i-th of both graphs, computes the same in both: its axes are not the batch's.
bool is_same_for_all_sizes(const Graph& part, const Graph& other, uint32_t i);

}  // namespace espalier
