#include "espalier/executor/collective_ops.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// A shape, for ops that read no more of an input.
struct ShapeOnly : Op {
  explicit ShapeOnly(Spec spec) : spec_(std::move(spec)) {}
  std::string_view name() const override { return "shape"; }
  OpKind kind() const override { return OpKind::leaf; }
  Specs infer(const InputSpecs&) const override { return {spec_}; }

 private:
  Spec spec_;
};

}  // namespace

bool detach_shapes(Graph& graph) {
  std::vector<uint32_t> shapes;    // nodes of the new graph
  std::vector<uint32_t> position;  // of the old nodes in the new one
  std::vector<GraphNode> out;
  bool changed = false;
  const auto shape_node = [&](const Spec& spec, const std::source_location& where) {
    for (const uint32_t node : shapes)
      if (out[node].outputs[0] == spec) return node;
    GraphNode n;
    n.op = std::make_shared<ShapeOnly>(spec);
    n.outputs = {spec};
    n.where = where;
    shapes.push_back(static_cast<uint32_t>(out.size()));
    out.push_back(std::move(n));
    return shapes.back();
  };
  for (GraphNode& n : graph.nodes) {
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      ValueRef& input = n.inputs[k];
      const ValueRef there{position[input.node], input.output};
      const GraphNode& from = out[there.node];
      if (n.op->needs_value(k) || n.op->has_side_effects() || from.op->is_leaf() || is_collective(*n.op)) {
        input = there;
      } else {
        const Spec spec = from.outputs[there.output];
        const std::source_location where = from.where;
        input = {shape_node(spec, where), 0};
        changed = true;
      }
    }
    position.push_back(static_cast<uint32_t>(out.size()));
    out.push_back(std::move(n));
  }
  graph.nodes = std::move(out);
  for (ValueRef& result : graph.results) result.node = position[result.node];
  if (changed) dead_nodes(graph);
  return changed;
}

}  // namespace espalier
