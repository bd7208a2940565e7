#include <algorithm>

#include "espalier/executor/fused/fused_op.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/graph/views.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/executor/plan/memory.h"

namespace espalier {

namespace {

constexpr uint32_t no_writer = UINT32_MAX;

/// What writes a leaf: its assignment, and the node that makes the new value.
struct Writers {
  uint32_t update = no_writer, assignment = no_writer;
};

std::vector<Writers> find_writers(const Graph& graph) {
  std::vector<Writers> writers(graph.nodes.size());  // by leaf
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (const GraphNode& n = graph.nodes[i]; n.op->has_side_effects())
      writers[n.inputs[0].node] = {.update = n.inputs[1].node, .assignment = i};
  return writers;
}

/// For each node that writes a leaf, the last node that must have run before; for others the last operand.
std::vector<uint32_t> find_places(const Graph& graph) {
  std::vector<uint32_t> behind(graph.nodes.size(), last_to_refuse(graph));
  const std::vector<Writers> writers = find_writers(graph);
  const Views views(graph);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    for (size_t k = n.op->has_side_effects() ? 1 : 0; k < n.inputs.size(); ++k) {
      if (!graph.nodes[n.inputs[k].node].op->is_leaf()) behind[i] = std::max(behind[i], n.inputs[k].node);
      if (!n.op->reads_elements(k)) continue;
      const auto& [update, assignment] = writers[views.node_of(n.inputs[k])];
      for (const uint32_t writer : {update, assignment})
        if (writer != no_writer && writer != i) behind[writer] = std::max(behind[writer], i);
    }
  }
  return behind;
}

/// The assignments of large updates, and the large updates of which nothing else reads a result and that can
/// write in place: products with an update behind them cannot.
std::vector<bool> find_movable(const Graph& graph) {
  const auto is_large = [](const Spec& s) { return s.shape.elements() > large_update; };
  std::vector<bool> movable(graph.nodes.size(), false);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    if (n.op->has_side_effects()) {
      movable[i] = n.tag == Tag::update && is_large(graph.spec(n.inputs[1]));
      continue;
    }
    movable[i] = n.tag == Tag::update && dynamic_cast<const FusedOp*>(n.op.get()) != nullptr &&
                 std::ranges::any_of(n.outputs, is_large);
    for (const ValueRef& input : n.inputs) movable[input.node] = false;
  }
  for (const ValueRef& result : graph.results) movable[result.node] = false;
  return movable;
}

}  // namespace

bool early_updates(Graph& graph, const CompileOptions&) {
  if (graph.device != DeviceType::cpu) return false;
  const std::vector<uint32_t> behind = find_places(graph);
  std::vector<bool> moves = find_movable(graph);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) moves[i] = moves[i] && behind[i] + 1 < i;
  if (std::ranges::count(moves, true) == 0) return false;
  GraphRewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    if (!moves[i]) continue;
    uint32_t place = behind[i];  // what is moved itself has stood behind a node that is not
    while (moves[place]) --place;
    rewriter.move_after(i, place);
  }
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (graph.nodes[i].op->is_leaf()) rewriter.move_first(i);
  rewriter.finish();
  return true;
}

}  // namespace espalier
