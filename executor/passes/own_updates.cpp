#include <algorithm>

#include "espalier/executor/gradient_bucket.h"
#include "espalier/executor/parameter_gather.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

void own_updates(Graph& graph, const StateOwners& owners, int replica) {
  std::vector<bool> keep;
  for (const GraphNode& n : graph.nodes) {
    const bool assigns = n.op->has_side_effects();
    const int owner = assigns ? owners.of(graph.nodes[n.inputs[0].node].leaf.node()) : -1;
    keep.push_back(owner < 0 || owner == replica);
  }
  graph.remove_unless(keep);
  dead_nodes(graph);  // others' states are not here to be read
}

void gather_parameters(Graph& graph, const std::shared_ptr<const StateOwners>& owners) {
  GraphNode gather;
  gather.op = std::make_shared<ParameterGather>(owners);
  gather.tag = Tag::update;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    if (is_arrival(*n.op)) {
      gather.inputs.push_back({i, static_cast<uint32_t>(n.outputs.size() - 1)});
      gather.where = n.where;
    } else if (n.op->has_side_effects() && is_parameter(*graph.nodes[n.inputs[0].node].op)) {
      gather.inputs.push_back({i, 0});
    }
  }
  for (const ValueRef& input : gather.inputs) gather.outputs.push_back(graph.spec(input));
  graph.nodes.push_back(std::move(gather));
}

void gather_last(Graph& graph) {
  std::vector<double> position;
  for (const GraphNode& n : graph.nodes) position.push_back(as_parameter_gather(*n.op) ? 1 : 0);
  graph.reorder(position);
}

}  // namespace espalier
