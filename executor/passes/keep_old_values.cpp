#include <algorithm>

#include "espalier/executor/parameter_gather.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// The value of a leaf before it is assigned.
struct Keep : Op {
  std::string_view name() const override { return "keep"; }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  bool only_copies() const override { return true; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[0], *call.outputs[0]); }
};

/// Here, or by the replica that owns it.
bool is_assigned(const Graph& graph, uint32_t leaf) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const GraphNode& n) {
    const ParameterGather* gather = as_parameter_gather(*n.op);
    return (n.op->has_side_effects() && n.inputs[0].node == leaf) ||
           (gather && gather->owners().of(graph.nodes[leaf].leaf.node()) >= 0);
  });
}

/// The leaf that a value is, itself or seen through views.
uint32_t behind_views(const Graph& graph, uint32_t node) {
  while (graph.nodes[node].op->is_view()) node = graph.nodes[node].inputs[0].node;
  return node;
}

/// Inserts a copy of `value` at position `at`, and returns it.
ValueRef insert_keep(Graph& graph, ValueRef value, uint32_t at) {
  GraphNode keep{shared_op<Keep>(), {value}, {graph.spec(value)}, Tag::forward, {}, {}, {}};
  keep.where = graph.nodes[value.node].where;
  graph.nodes.insert(graph.nodes.begin() + at, std::move(keep));
  for (size_t i = at + 1; i < graph.nodes.size(); ++i)
    for (ValueRef& input : graph.nodes[i].inputs) input.node += input.node >= at;
  for (ValueRef& result : graph.results) result.node += result.node >= at;
  return {at, 0};
}

}  // namespace

bool keep_old_values(Graph& graph) {
  bool changed = false;
  const auto first_assignment = [&] {
    const auto first = std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const GraphNode& n) {
      return n.op->has_side_effects() || as_parameter_gather(*n.op);
    });
    return static_cast<uint32_t>(first - graph.nodes.begin());
  };
  for (size_t r = 0; r < graph.results.size(); ++r) {
    if (!is_assigned(graph, behind_views(graph, graph.results[r].node))) continue;
    const ValueRef kept = insert_keep(graph, graph.results[r], first_assignment());
    graph.results[r] = kept;
    changed = true;
  }
  for (uint32_t i = first_assignment(); i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    if (!n.op->has_side_effects() || !is_assigned(graph, behind_views(graph, n.inputs[1].node))) continue;
    const ValueRef kept = insert_keep(graph, n.inputs[1], first_assignment());
    graph.nodes[++i].inputs[1] = kept;  // it has moved on by one
    changed = true;
  }
  return changed;
}

}  // namespace espalier
