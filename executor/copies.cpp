#include "espalier/executor/copies.h"

namespace espalier {

namespace {

constexpr uint32_t none = no_gap;  // no position

}  // namespace

Uses::Uses(const Graph& graph, const MemoryPlan& plan) {
  const auto n = static_cast<uint32_t>(graph.nodes.size());
  is_seen_through.resize(n);
  behind.resize(n);
  readers.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    const GraphNode& node = graph.nodes[i];
    is_seen_through[i] = node.op->is_view() && !plan.runs[i];
    behind[i] = is_seen_through[i] ? behind[node.inputs[0].node] : i;
    if (is_seen_through[i]) continue;
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (auto& all = readers[behind[node.inputs[k].node]];
          node.op->needs_value(k) && (all.empty() || all.back() != i))
        all.push_back(i);
  }
  for (const ValueRef& result : graph.results) readers[behind[result.node]].push_back(n);
}

Rebuilt::Rebuilt(const Graph& base, const Uses& uses, const Gaps& gaps)
    : position(base.nodes.size(), none),
      base_(base),
      uses_(uses),
      gaps_(gaps),
      copies_(base.nodes.size(), none) {
  graph.streams = base.streams;
  graph.nodes.reserve(base.nodes.size() + 16);
  for (uint32_t i = 0; i < base.nodes.size(); ++i)
    if (!uses_.is_seen_through[i]) position[i] = emit(i, i);
  for (const ValueRef& result : base.results)
    graph.results.push_back(at(result, static_cast<uint32_t>(base.nodes.size())));
}

uint32_t Rebuilt::emit(uint32_t i, uint32_t when) {
  GraphNode n = base_.nodes[i];
  for (size_t k = 0; k < n.inputs.size(); ++k)
    n.inputs[k] = n.op->needs_value(k) ? at(n.inputs[k], when) : original(n.inputs[k]);
  graph.nodes.push_back(std::move(n));
  return static_cast<uint32_t>(graph.nodes.size() - 1);
}

ValueRef Rebuilt::original(ValueRef v) {
  if (position[v.node] == none) {  // a view
    GraphNode n = base_.nodes[v.node];
    for (ValueRef& input : n.inputs) input = original(input);
    graph.nodes.push_back(std::move(n));
    position[v.node] = static_cast<uint32_t>(graph.nodes.size() - 1);
  }
  return {position[v.node], v.output};
}

ValueRef Rebuilt::at(ValueRef v, uint32_t when) {
  const uint32_t i = v.node;
  if (copies_[i] != none) return {copies_[i], v.output};
  if (uses_.is_seen_through[i]) {
    const ValueRef shown = base_.nodes[i].inputs[0];
    if (at(shown, when) == original(shown)) return original(v);
  } else if (gaps_[i] == no_gap || when <= gaps_[i]) {
    return original(v);
  }
  copies_[i] = emit(i, when);
  return {copies_[i], v.output};
}

}  // namespace espalier
