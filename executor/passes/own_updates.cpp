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

bool owners_read_their_own(const Graph& graph, const std::vector<Variable>& parameters,
                           const std::vector<ValueRef>& gradients, const StateOwners& owners) {
  constexpr int nobody = -1, several = -2;
  const auto join = [](int a, int b) { return a == nobody ? b : b == nobody || a == b ? a : several; };
  std::map<ValueRef, int> whose;
  for (size_t k = 0; k < gradients.size(); ++k) {
    const int owner = owners.of(parameters[k].node());
    int& known = whose.emplace(gradients[k], nobody).first->second;
    known = join(known, owner < 0 ? several : owner);
  }
  std::vector<int> read(graph.nodes.size(), nobody);  // whose gradients updates are made of
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    if (n.tag != Tag::update) continue;
    for (const ValueRef& input : n.inputs) {
      const auto gradient = whose.find(input);
      read[i] = join(read[i], gradient != whose.end() ? gradient->second : read[input.node]);
    }
    if (n.op->has_side_effects() && read[i] != nobody &&
        read[i] != owners.of(graph.nodes[n.inputs[0].node].leaf.node()))
      return false;
  }
  return true;
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
