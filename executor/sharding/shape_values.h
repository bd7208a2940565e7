// Nodes that read nothing of their inputs but the shapes, such as a number of rows.
#pragma once
#include "espalier/executor/graph/graph.h"

namespace espalier {

bool reads_shapes_alone(const GraphNode& n);

/// What the i-th node of a graph computes, which is made of shapes alone.
Tensor value_of_shapes(const Graph& graph, uint32_t i);
/// Whether that takes few elements.
bool is_cheap_to_know(const Graph& graph, uint32_t i);

/// Whether a node that reads shapes alone, the i-th of both graphs, computes the same in both: its axes are
/// not the batch's.
bool is_same_for_all_sizes(const Graph& part, const Graph& other, uint32_t i);

}  // namespace espalier
