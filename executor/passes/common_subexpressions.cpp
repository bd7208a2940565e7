#include <cstring>
#include <string>

#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// A hash key: equal nodes have equal keys, and `equals` compares nodes of one key.
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
  if (n.op->is_leaf() || n.op->effect() != Effect::none || n.op->feed()) return {};
  key += to_string(n.op->attributes());
  for (const ValueRef& input : n.inputs)
    key += '%' + std::to_string(input.node) + '.' + std::to_string(input.output);
  return key;
}

}  // namespace

bool common_subexpressions(Graph& graph, const CompileOptions&) {
  std::map<std::string, uint32_t> seen;
  bool changed = false;
  GraphRewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    GraphNode& n = graph.nodes[i];
    for (ValueRef& input : n.inputs) input = rewriter.resolve(input);
    const std::string key = key_of(n);
    if (key.empty()) continue;
    const auto [first, fresh] = seen.emplace(key, i);
    if (fresh || !(n.is_constant() || n.op->equals(*graph.nodes[first->second].op))) continue;
    for (uint32_t k = 0; k < n.outputs.size(); ++k) rewriter.replace({i, k}, {first->second, k});
    changed = true;
  }
  if (!changed) return false;
  rewriter.finish();
  dead_nodes(graph);
  return true;
}

}  // namespace espalier
