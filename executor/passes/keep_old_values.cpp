#include <algorithm>
#include <set>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/op_registry.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// Copies the value of a leaf before its assignment.
struct Keep : Op {
  Keep() : Op({.only_copies = true}) {}
  std::string_view name() const override { return "keep"; }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[0], *call.outputs[0]); }
};

/// The leaves that the step writes, on this rank or on the rank that owns them.
std::vector<bool> assigned_leaves(const Graph& graph) {
  std::vector<bool> assigned(graph.nodes.size(), false);
  std::set<const Node*> gathered;
  for (const GraphNode& n : graph.nodes) {
    if (n.op->effect() == Effect::writes_leaf) assigned[n.inputs[0].node] = true;
    gathered.insert(n.gathered.begin(), n.gathered.end());
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (gathered.count(graph.nodes[i].leaf.node())) assigned[i] = true;
  return assigned;
}

/// The node below any views.
uint32_t behind_views(const Graph& graph, uint32_t node) {
  while (graph.nodes[node].op->is_view()) node = graph.nodes[node].inputs[0].node;
  return node;
}

}  // namespace

void add_keep_op(OpRegistry& ops) { ops.add<Keep>(Arity::passes_only()); }

bool keep_old_values(Graph& graph, const CompileOptions&) {
  const auto writes = [](const GraphNode& n) {
    return n.op->effect() == Effect::writes_leaf || !n.gathered.empty();
  };
  const auto first = static_cast<uint32_t>(std::ranges::find_if(graph.nodes, writes) - graph.nodes.begin());
  const std::vector<bool> assigned = assigned_leaves(graph);
  GraphRewriter rewriter(graph);
  bool changed = false;
  const auto keep = [&](ValueRef& value) {
    if (!assigned[behind_views(graph, value.node)]) return;
    GraphNode copy;
    copy.op = shared_op<Keep>();
    copy.inputs = {value};
    copy.outputs = {graph.spec(value)};
    copy.where = graph.nodes[value.node].where;
    value = {rewriter.add_before(first, std::move(copy)), 0};
    changed = true;
  };
  for (ValueRef& result : graph.results) keep(result);
  for (uint32_t i = first; i < graph.nodes.size(); ++i)
    if (graph.nodes[i].op->effect() == Effect::writes_leaf)
      keep(graph.nodes[i].inputs[1]);
    else if (is_store(*graph.nodes[i].op))
      keep(graph.nodes[i].inputs[0]);
  if (changed) rewriter.finish();
  return changed;
}

}  // namespace espalier
