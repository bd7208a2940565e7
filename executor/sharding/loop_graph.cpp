#include "espalier/executor/sharding/loop_graph.h"

#include "espalier/core/tree.h"

namespace espalier {

Graph graph_of_step(const LoopBody& body, const InputSpecs& operands, Tag tag) {
  const std::vector<Spec> given = body.of_step(operands);
  const std::vector<Specs> specs = body.specs_of_nodes(given);
  Graph graph;
  NodeMap position;
  const auto add = [&](const Node& node, Specs outputs) {
    position.insert(&node, static_cast<uint32_t>(graph.nodes.size()));
    GraphNode& n = graph.nodes.emplace_back();
    n.op = node.op_;
    n.outputs = std::move(outputs);
    n.tag = tag;
    n.where = node.where;
  };
  const auto at = [&](const Node* node, uint32_t output) { return ValueRef{position.find(node), output}; };
  for (size_t i = 0; i < body.inputs.size(); ++i) add(*body.inputs[i].node(), {given[i]});
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    const Node& node = *body.nodes[i];
    if (position.find(&node) != NodeMap::none) continue;
    add(node, specs[i]);
    for (const Edge& edge : node.inputs) graph.nodes.back().inputs.push_back(at(edge.node(), edge.output()));
  }
  for (const Variable& y : body.outputs) graph.results.push_back(at(y.node(), y.output()));
  return graph;
}

}  // namespace espalier
