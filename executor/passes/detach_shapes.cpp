#include "espalier/core/op_registry.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// A placeholder with a shape and no value, for inputs of which only the shape is read.
struct ShapeOnly : Op {
  explicit ShapeOnly(Spec spec) : Op({.kind = OpKind::leaf}), spec_(std::move(spec)) {}
  std::string_view name() const override { return "shape"; }
  Attributes attributes() const override {
    return {{"dtype", std::string(espalier::name(spec_.dtype))},
            {"shape", std::vector<int64_t>(spec_.shape.begin(), spec_.shape.end())}};
  }
  Specs infer(const InputSpecs&) const override { return {spec_}; }

 private:
  Spec spec_;
};

}  // namespace

void add_shape_op(OpRegistry& ops) {
  ops.add("shape", Arity::passes_only(), [](AttributeReader& a) {
    Spec spec{a.dtype("dtype"), a.shape("shape")};
    (void)spec.shape.elements();  // throws on negative sizes
    return std::make_shared<ShapeOnly>(std::move(spec));
  });
}

bool detach_shapes(Graph& graph, const CompileOptions&) {
  GraphRewriter rewriter(graph);
  std::map<std::pair<DType, std::vector<int64_t>>, uint32_t> shapes;
  const auto shape_node = [&](ValueRef like, uint32_t reader) {
    const Spec& spec = graph.spec(like);
    const auto [known, fresh] =
        shapes.emplace(std::pair(spec.dtype, std::vector<int64_t>(spec.shape.begin(), spec.shape.end())), 0);
    if (!fresh) return known->second;
    GraphNode n;
    n.op = std::make_shared<ShapeOnly>(spec);
    n.outputs = {spec};
    n.where = graph.nodes[like.node].where;
    return known->second = rewriter.add_before(reader, std::move(n));
  };
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    GraphNode& n = graph.nodes[i];
    // Unread inputs of these ops name the leaf they write, or fix their order.
    if (n.op->effect() == Effect::writes_leaf || n.op->effect() == Effect::communicates) continue;
    for (size_t k = 0; k < n.inputs.size(); ++k)
      if (!n.op->reads_elements(k) && !graph.nodes[n.inputs[k].node].op->is_leaf())
        n.inputs[k] = {shape_node(n.inputs[k], i), 0};
  }
  if (shapes.empty()) return false;
  rewriter.finish();
  dead_nodes(graph);
  return true;
}

}  // namespace espalier
