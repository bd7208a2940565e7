// On a GPU: a sum over axes on both sides of others, as over batch and places of [batch, channels, height,
// width], becomes one over the last axes, which fused kernels take in as a fold of rows, and one of what that
// leaves.
#include <algorithm>

#include "espalier/core/op_registry.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/clusters.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

constexpr int64_t shortest_row = 32;  // elements
/// Of an operand; for less, another kernel costs more than it saves.
constexpr int64_t least_elements = 1 << 14;

/// The last axes that are folded, as many as fit into a row; none if no others are folded, if no axis is
/// kept, or if a row would be short.
std::vector<int64_t> axes_of_rows(const Shape& shape, const Dims& folded) {
  std::vector<int64_t> axes;
  int64_t row = 1;
  for (auto axis = static_cast<int64_t>(shape.rank()) - 1; axis >= 0; --axis) {
    if (std::ranges::find(folded, axis) == folded.end() || row * shape.dims()[axis] > longest_row) break;
    row *= shape.dims()[axis];
    axes.insert(axes.begin(), axis);
  }
  const bool has_others = axes.size() < folded.size() && folded.size() < shape.rank();
  return has_others && row >= shortest_row ? axes : std::vector<int64_t>();
}

bool is_prefix(const Dims& folded) {
  for (size_t i = 0; i < folded.size(); ++i)
    if (folded[i] != static_cast<int64_t>(i)) return false;
  return true;
}

}  // namespace

bool split_reductions(Graph& graph, const CompileOptions&) {
  if (graph.device == DeviceType::cpu) return false;
  GraphRewriter rewriter(graph);
  bool changed = false;
  for (uint32_t i = 0, n = static_cast<uint32_t>(graph.nodes.size()); i < n; ++i) {
    GraphNode& node = graph.nodes[i];
    if (node.op->is_leaf() || node.op->feed() || node.inputs.empty() || node.outputs.size() != 1) continue;
    const Spec& in = graph.spec(node.inputs[0]);
    if (!is_real(in.dtype) || is_half(in.dtype) || in.shape.elements() < least_elements) continue;
    InputSpecs specs;
    for (const ValueRef& input : node.inputs) specs.push_back(&graph.spec(input));
    const std::optional<Folding> folding = node.op->folding(specs);
    if (!folding || (folding->fold != Fold::sum && folding->fold != Fold::mean)) continue;
    Dims folded = folding->axes;
    std::ranges::sort(folded);
    if (is_prefix(folded)) continue;
    const std::vector<int64_t> axes = axes_of_rows(in.shape, folded);
    if (axes.empty()) continue;
    GraphNode rows = node;
    rows.op = make_op(folding->fold == Fold::sum ? "sum" : "mean", {{"axes", axes}, {"keep_dims", true}});
    rows.inputs = {node.inputs[0]};
    rows.outputs = rows.op->infer({&in});
    node.inputs[0] = {rewriter.add_before(i, std::move(rows)), 0};
    changed = true;
  }
  if (changed) rewriter.finish();
  return changed;
}

}  // namespace espalier
