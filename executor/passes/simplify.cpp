#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

std::optional<double> fill_of(const Graph& graph, ValueRef v) {
  while (graph.nodes[v.node].op->is_view()) v = graph.nodes[v.node].inputs[0];
  const GraphNode& n = graph.nodes[v.node];
  if (n.is_constant()) {
    Tensor one = *n.constant;  // it may be a broadcast number
    for (size_t axis = 0; axis < one.rank(); ++axis) {
      if (one.shape().dims()[axis] == 0) return std::nullopt;
      if (one.strides()[axis] == 0) one = one.slice(static_cast<int64_t>(axis), 0, 1);
    }
    return one.elements() == 1 ? std::optional(one.item()) : std::nullopt;
  }
  return n.op->traits().fill;
}

bool simplify(Graph& graph, const CompileOptions&) {
  GraphRewriter rewriter(graph);
  bool changed = false;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    GraphNode& n = graph.nodes[i];
    KnownInputs known;
    for (ValueRef& input : n.inputs) {
      input = rewriter.resolve(input);
      known.specs.push_back(&graph.spec(input));
      known.fill.push_back(fill_of(graph, input));
    }
    const std::optional<size_t> same = n.op->identity(known, n.outputs[0]);
    if (!same || !(graph.spec(n.inputs[*same]) == n.outputs[0])) continue;
    rewriter.replace({i, 0}, n.inputs[*same]);
    changed = true;
  }
  if (!changed) return false;
  rewriter.finish();
  dead_nodes(graph);
  return true;
}

}  // namespace espalier
