#include <cstring>
#include <string>

#include "espalier/executor/collective_ops.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// Nodes with one key may be the same; `equals` decides.
std::string key_of(const GraphNode& n) {
  std::string key(n.op->name());
  if (n.is_constant()) {
    if (n.constant.bytes() > 1024) return {};
    const Tensor plain = n.constant.to(cpu()).contiguous_copy();
    key += n.constant.device().str() + n.constant.shape().str();
    key += name(n.constant.dtype());
    key.append(static_cast<const char*>(plain.address()), plain.bytes());
    return key;
  }
  if (n.op->is_leaf() || n.op->is_random() || n.op->has_side_effects() || n.op->feed() ||
      is_collective(*n.op))
    return {};
  key += to_string(n.op->attributes());
  for (const ValueRef& input : n.inputs)
    key += '%' + std::to_string(input.node) + '.' + std::to_string(input.output);
  return key;
}

}  // namespace

bool common_subexpressions(Graph& graph) {
  std::map<std::string, uint32_t> seen;
  bool changed = false;
  std::vector<uint32_t> stands_for(graph.nodes.size());
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    GraphNode& n = graph.nodes[i];
    for (ValueRef& input : n.inputs) input.node = stands_for[input.node];
    stands_for[i] = i;
    const std::string key = key_of(n);
    if (key.empty()) continue;
    const auto [first, fresh] = seen.emplace(key, i);
    if (fresh || !(n.is_constant() || n.op->equals(*graph.nodes[first->second].op))) continue;
    stands_for[i] = first->second;
    changed = true;
  }
  for (ValueRef& result : graph.results) result.node = stands_for[result.node];
  if (changed) dead_nodes(graph);
  return changed;
}

}  // namespace espalier
