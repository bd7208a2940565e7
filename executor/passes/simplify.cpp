#include "espalier/core/op_registry.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/matmul/matmul.h"

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

namespace {

/// Writes a product with a vector that is added to each row, as layers compute it at once, as a product and a
/// sum, for other passes to find.
bool split_layer(GraphRewriter& rewriter, uint32_t i) {
  GraphNode& n = rewriter.node(i);
  if (!n.op->traits().sums_products || n.inputs.size() != 3) return false;
  if (rewriter.spec(n.inputs[0]).shape.rank() != 1) return false;
  const MatmulForm form{attribute<bool>(*n.op, "transpose_a"), attribute<bool>(*n.op, "transpose_b")};
  GraphNode product = n;
  product.op = matmul_op(form);
  product.inputs = {n.inputs[1], n.inputs[2]};
  const ValueRef summand = n.inputs[0];
  const uint32_t number = rewriter.add_before(i, std::move(product));
  n.op = make_op("add", {});
  n.inputs = {{number, 0}, summand};
  return true;
}

}  // namespace

bool simplify(Graph& graph, const CompileOptions&) {
  GraphRewriter rewriter(graph);
  bool changed = false;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    GraphNode& n = graph.nodes[i];
    for (ValueRef& input : n.inputs) input = rewriter.resolve(input);
    if (split_layer(rewriter, i)) {
      changed = true;
      continue;
    }
    KnownInputs known;
    for (const ValueRef& input : n.inputs) {
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
