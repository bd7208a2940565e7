#include "espalier/executor/graph/graph.h"

#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier {

void verify(const Graph& graph, std::string_view after) {
  const auto fail = [&](uint32_t node, std::string_view why) {
    throw Error(fmt::format("the plan is broken after '{}': %{} ({}, written at {}) {}", after, node,
                            graph.nodes[node].op->name(), line_of(graph.nodes[node].where), why));
  };
  std::vector<bool> assigned(graph.nodes.size(), false);  // leaves, so far
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    if (n.outputs.empty()) fail(i, "has no output");
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const ValueRef& input = n.inputs[k];
      if (input.node >= i) fail(i, "comes before its input");
      if (input.output >= graph.nodes[input.node].outputs.size())
        fail(i, "reads an output that does not exist");
      if (!n.op->reads_elements(k)) continue;
      if (assigned[input.node]) fail(i, "reads a leaf that has been assigned already");
    }
    if (n.op->has_side_effects()) {
      if (!graph.nodes[n.inputs[0].node].leaf.defined()) fail(i, "assigns a node that is not a leaf");
      if (assigned[n.inputs[0].node]) fail(i, "assigns a leaf for the second time");
      assigned[n.inputs[0].node] = true;
    }
    if (n.op->is_leaf() || n.op->feed()) continue;
    if (!(infer_outputs(graph, n) == n.outputs))
      fail(i, "has outputs that differ from those inferred from its inputs");
  }
  for (const ValueRef& result : graph.results)
    if (result.node >= graph.nodes.size())
      throw Error(fmt::format("the plan lost a result after '{}'", after));
}

}  // namespace espalier
