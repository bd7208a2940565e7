#include <algorithm>

#include "espalier/executor/fused/matmul_ops.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/clusters.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// How often each node's outputs are read, results included.
std::vector<int> count_readers(const Graph& graph) {
  std::vector<int> readers(graph.nodes.size(), 0);
  for (const GraphNode& n : graph.nodes)
    for (const ValueRef& input : n.inputs) ++readers[input.node];
  for (const ValueRef& result : graph.results) ++readers[result.node];
  return readers;
}

/// The node that makes a value with no other reader, seen through views that keep the order of its elements.
std::optional<uint32_t> only_read_here(const Graph& graph, const std::vector<int>& readers, ValueRef v) {
  const ViewSource seen = resolve_views(graph, v);
  if (!seen.layout.contiguous() || seen.layout.offset != 0 ||
      seen.layout.shape.elements() != graph.spec(seen.value).shape.elements())
    return std::nullopt;
  for (; v.node != seen.value.node; v = graph.nodes[v.node].inputs[0])
    if (readers[v.node] != 1) return std::nullopt;
  return readers[v.node] == 1 ? std::optional(v.node) : std::nullopt;
}

/// The last node that reads a value, itself or through views; `but_for` does not count.
uint32_t last_reader(const Graph& graph, uint32_t node, uint32_t but_for) {
  uint32_t last = 0;
  for (uint32_t i = node + 1; i < graph.nodes.size(); ++i) {
    if (i == but_for || graph.nodes[i].op->has_side_effects()) continue;
    for (size_t k = 0; k < graph.nodes[i].inputs.size(); ++k)
      if (graph.nodes[i].op->reads_elements(k) &&
          resolve_views(graph, graph.nodes[i].inputs[k]).value.node == node)
        last = i;
  }
  return last;
}

/// Nodes, each with one behind which it shall stand.
using Moves = std::vector<std::pair<uint32_t, uint32_t>>;

/// Puts nodes behind others, those that are moved themselves standing where they stood.
void move_behind(GraphRewriter& rewriter, const Graph& graph, Moves moves) {
  std::vector<bool> moving(graph.nodes.size(), false);
  for (const auto& [node, place] : moves) moving[node] = true;
  std::ranges::stable_sort(moves, {}, &Moves::value_type::second);
  for (auto [node, place] : moves) {
    while (moving[place]) --place;  // leaves come first, and do not move
    rewriter.move_after(node, place);
  }
}

/// Lets each update wait for whoever else reads its parameter, so that it can write there.
void let_updates_wait(Graph& graph) {
  Moves moves;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    if (!dynamic_cast<const MatmulUpdate*>(graph.nodes[i].op.get())) continue;
    const uint32_t last = last_reader(graph, graph.nodes[i].inputs[0].node, i);
    if (last > i) moves.emplace_back(i, last);
  }
  GraphRewriter rewriter(graph);
  move_behind(rewriter, graph, std::move(moves));
  rewriter.finish();
}

}  // namespace

bool fuse_sgd(Graph& graph, const CompileOptions& options) {
  // On a GPU one kernel updates all parameters, while each such product would be a kernel more.
  if (options.device != DeviceType::cpu) return false;
  const std::vector<int> readers = count_readers(graph);
  Moves moves;
  const auto name = [&](ValueRef v) { return graph.nodes[v.node].op->name(); };
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    GraphNode& n = graph.nodes[i];
    if (n.tag != Tag::update || n.op->name() != "subtract") continue;
    const ValueRef p = n.inputs[0], scaled = n.inputs[1];
    if (!graph.nodes[p.node].leaf.defined() || name(scaled) != "multiply") continue;
    ValueRef rate = graph.nodes[scaled.node].inputs[0], product = graph.nodes[scaled.node].inputs[1];
    if (graph.nodes[rate.node].op->traits().matmul_form) std::swap(rate, product);
    const auto form = graph.nodes[product.node].op->traits().matmul_form;
    if (!form || graph.spec(rate).shape.elements() != 1 || !graph.nodes[rate.node].leaf.defined()) continue;
    if (readers[scaled.node] != 1 || readers[product.node] != 1) continue;
    if (!(graph.spec(product) == graph.spec(p)) || !(n.outputs[0] == graph.spec(p)) ||
        graph.spec(p).shape.rank() != 2)
      continue;
    // Once the parameter has no further reader: its operands need not wait for the other updates.
    const uint32_t last = std::max(last_reader(graph, p.node, i), product.node);
    n.op = std::make_shared<MatmulUpdate>(*form);
    n.inputs = {p, rate, graph.nodes[product.node].inputs[0], graph.nodes[product.node].inputs[1]};
    moves.emplace_back(i, last);
  }
  if (moves.empty()) return false;
  GraphRewriter rewriter(graph);
  move_behind(rewriter, graph, std::move(moves));
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (graph.nodes[i].op->is_leaf()) rewriter.move_first(i);
  rewriter.finish();
  dead_nodes(graph);
  return true;
}

namespace {

/// Whether the program reads its input `k` element by element, in the order of all its elements.
bool reads_in_order(const Program& program, size_t k) {
  for (const Instruction& instruction : program.instructions)
    for (const Argument& argument : instruction.arguments)
      if (argument.from == Argument::From::input && argument.index == k &&
          (argument.extent != Extent::full || instruction.shape.elements() != program.elements))
        return false;
  return true;
}

/// Bytes of an anchor's operands that live longer if they are first read at step `until`.
int64_t bytes_kept(const Graph& graph, uint32_t anchor, uint32_t until) {
  int64_t bytes = 0;
  for (const ValueRef& operand : graph.nodes[anchor].inputs) {
    const ViewSource seen = resolve_views(graph, operand);
    if (graph.nodes[seen.value.node].op->is_leaf()) continue;
    if (last_reader(graph, seen.value.node, anchor) < until) bytes += graph.spec(seen.value).bytes();
  }
  return bytes;
}

/// Whether a node's output may have a program behind it, inside the same node.
bool is_anchor(const Graph& graph, const GraphNode& n) {
  return n.op->traits().anchors_epilogue && n.op->effect() == Effect::none && n.outputs.size() == 1 &&
         graph.spec(n.inputs[0]).shape.elements() > 0;
}

/// Makes the program at node i the epilogue of the first of its inputs that allows it.
bool take_in(Graph& graph, const std::vector<int>& readers, uint32_t i) {
  GraphNode& n = graph.nodes[i];
  const auto program = std::dynamic_pointer_cast<const FusedOp>(n.op);
  if (!program) return false;
  for (size_t k = 0; k < n.inputs.size(); ++k) {
    const auto made = only_read_here(graph, readers, n.inputs[k]);
    if (!made) continue;
    const GraphNode& anchor = graph.nodes[*made];
    if (!is_anchor(graph, anchor)) continue;
    const Spec& output = anchor.outputs[0];
    if (output.shape.elements() != program->program().elements || !reads_in_order(program->program(), k))
      continue;
    // The operands must live until here; the anchor's output need not any more.
    if (bytes_kept(graph, *made, i) > output.bytes()) continue;
    std::vector<ValueRef> inputs = anchor.inputs;
    for (size_t other = 0; other < n.inputs.size(); ++other)
      if (other != k) inputs.push_back(n.inputs[other]);
    n.op =
        with_epilogue({anchor.op, anchor.inputs.size(), output, graph.spec(n.inputs[k]).shape, program, k});
    n.inputs = std::move(inputs);
    return true;
  }
  return false;
}

}  // namespace

bool fuse_matmul(Graph& graph, const CompileOptions&) {
  const std::vector<int> readers = count_readers(graph);
  bool changed = false;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) changed |= take_in(graph, readers, i);
  if (changed) {
    let_updates_wait(graph);  // an anchor now reads its operands later than before
    dead_nodes(graph);
  }
  return changed;
}

}  // namespace espalier
