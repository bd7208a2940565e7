#include "espalier/executor/passes/passes.h"

namespace espalier {

bool dead_nodes(Graph& graph, const CompileOptions&) {
  std::vector<bool> alive(graph.nodes.size(), false);
  for (const ValueRef& result : graph.results) alive[result.node] = true;
  size_t count = 0;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const GraphNode& n = graph.nodes[i];
    const Effect effect = n.op->effect();
    if (effect == Effect::writes_leaf || effect == Effect::communicates) alive[i] = true;
    if (!alive[i]) continue;
    ++count;
    for (const ValueRef& input : n.inputs) alive[input.node] = true;
  }
  if (count == graph.nodes.size()) return false;
  graph.remove_unless(alive);
  return true;
}

}  // namespace espalier
