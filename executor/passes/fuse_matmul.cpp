#include <algorithm>

#include "espalier/core/op_names.h"
#include "espalier/executor/fused/matmul_ops.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/graph/views.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/matmul/bfloat16_product.h"

namespace espalier {

namespace {

/// The readers of each value of a graph, while nodes are given further inputs. Views must not change.
class Reads {
 public:
  explicit Reads(const Graph& graph)
      : graph_(graph), views_(graph), count_(graph.nodes.size(), 0), last_(graph.nodes.size()) {
    for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
      const GraphNode& n = graph.nodes[i];
      for (size_t k = 0; k < n.inputs.size(); ++k) {
        ++count_[n.inputs[k].node];
        if (n.op->reads_elements(k) && !n.op->has_side_effects()) add(i, n.inputs[k]);
      }
    }
    for (const ValueRef& result : graph.results) ++count_[result.node];
  }

  /// How often a node's outputs were read at first, results included.
  int count(uint32_t node) const { return count_[node]; }
  ViewSource source_of(ValueRef v) const { return views_.of(v); }

  /// The node that makes a value with no other reader, seen through views that keep the order of its
  /// elements.
  std::optional<uint32_t> only_here(ValueRef v) const {
    const ViewSource seen = views_.of(v);
    if (!seen.layout.contiguous() || seen.layout.offset != 0 ||
        seen.layout.shape.elements() != graph_.spec(seen.value).shape.elements())
      return std::nullopt;
    for (; v.node != seen.value.node; v = graph_.nodes[v.node].inputs[0])
      if (count_[v.node] != 1) return std::nullopt;
    return count_[v.node] == 1 ? std::optional(v.node) : std::nullopt;
  }

  /// The last node that reads a value, itself or through views; `but_for` does not count. 0: none.
  uint32_t last(uint32_t node, uint32_t but_for) const {
    return last_[node].last != but_for ? last_[node].last : last_[node].second_to_last;
  }
  /// Notes that a node reads a value from now on.
  void add(uint32_t reader, ValueRef value) {
    Last& l = last_[views_.node_of(value)];
    if (reader == l.last || reader <= l.second_to_last) return;
    if (reader > l.last) {
      l.second_to_last = l.last;
      l.last = reader;
    } else {
      l.second_to_last = reader;
    }
  }

 private:
  struct Last {
    uint32_t last = 0, second_to_last = 0;
  };
  const Graph& graph_;
  const Views views_;
  std::vector<int> count_;
  std::vector<Last> last_;
};

/// Nodes, each with one behind which it shall stand.
using Moves = std::vector<std::pair<uint32_t, uint32_t>>;

/// Puts nodes behind others, those that are moved themselves standing where they stood.
void move_behind(GraphRewriter& rewriter, const Graph& graph, Moves moves) {
  std::vector<bool> moving(graph.nodes.size(), false);
  for (const auto& [node, place] : moves) moving[node] = true;
  std::vector<uint32_t> staying(graph.nodes.size(), 0);  // the last node up to each that does not move
  for (uint32_t i = 1; i < staying.size(); ++i) staying[i] = moving[i] ? staying[i - 1] : i;
  std::ranges::stable_sort(moves, {}, &Moves::value_type::second);
  for (const auto& [node, place] : moves) rewriter.move_after(node, staying[place]);  // leaves do not move
}

/// Moves each update behind the other readers of its parameter, so that it can write there.
void let_updates_wait(Graph& graph, const Reads& reads) {
  Moves moves;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    if (!dynamic_cast<const MatmulUpdate*>(graph.nodes[i].op.get())) continue;
    const uint32_t last = reads.last(graph.nodes[i].inputs[0].node, i);
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
  Reads reads(graph);
  Moves moves;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    GraphNode& n = graph.nodes[i];
    if (n.tag != Tag::update || !is_op(*n.op, "subtract")) continue;
    const ValueRef p = n.inputs[0], scaled = n.inputs[1];
    if (!graph.nodes[p.node].leaf.defined() || !is_op(*graph.nodes[scaled.node].op, "multiply")) continue;
    ValueRef rate = graph.nodes[scaled.node].inputs[0], product = graph.nodes[scaled.node].inputs[1];
    if (graph.nodes[rate.node].op->traits().matmul_form) std::swap(rate, product);
    const auto form = graph.nodes[product.node].op->traits().matmul_form;
    if (!form || graph.spec(rate).shape.elements() != 1 || !graph.nodes[rate.node].leaf.defined()) continue;
    if (reads.count(scaled.node) != 1 || reads.count(product.node) != 1) continue;
    if (!(graph.spec(product) == graph.spec(p)) || !(n.outputs[0] == graph.spec(p)) ||
        graph.spec(p).shape.rank() != 2)
      continue;
    // Once the parameter has no further reader: its operands need not wait for the other updates.
    const uint32_t last = std::max(reads.last(p.node, i), product.node);
    n.op = std::make_shared<MatmulUpdate>(*form);
    n.inputs = {p, rate, graph.nodes[product.node].inputs[0], graph.nodes[product.node].inputs[1]};
    for (const ValueRef& input : n.inputs) reads.add(i, input);
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

/// For each input of a program, whether it is read element by element, in the order of all its elements.
std::vector<bool> read_in_order(const Program& program, size_t inputs) {
  std::vector<bool> in_order(inputs, true);
  for (const Instruction& instruction : program.instructions)
    for (const Argument& argument : instruction.arguments)
      if (argument.from == Argument::From::input &&
          (argument.extent != Extent::full || instruction.shape.elements() != program.elements))
        in_order[argument.index] = false;
  return in_order;
}

/// Bytes of an anchor's operands that live longer if they are first read at step `until`.
int64_t bytes_kept(const Graph& graph, const Reads& reads, uint32_t anchor, uint32_t until) {
  int64_t bytes = 0;
  for (const ValueRef& operand : graph.nodes[anchor].inputs) {
    const ValueRef source = reads.source_of(operand).value;
    if (graph.nodes[source.node].op->is_leaf()) continue;
    if (reads.last(source.node, anchor) < until) bytes += graph.spec(source).bytes();
  }
  return bytes;
}

/// Whether a node's output may have a program behind it, inside the same node.
bool is_anchor(const Graph& graph, const GraphNode& n) {
  return n.op->traits().anchors_epilogue && n.op->effect() == Effect::none && n.outputs.size() == 1 &&
         graph.spec(n.inputs[0]).shape.elements() > 0;
}

/// Makes the program at node i the epilogue of the first of its inputs that allows it.
bool take_in(Graph& graph, Reads& reads, uint32_t i) {
  GraphNode& n = graph.nodes[i];
  const auto program = std::dynamic_pointer_cast<const FusedOp>(n.op);
  if (!program) return false;
  const std::vector<bool> in_order = read_in_order(program->program(), n.inputs.size());
  for (size_t k = 0; k < n.inputs.size(); ++k) {
    const auto made = reads.only_here(n.inputs[k]);
    if (!made) continue;
    const GraphNode& anchor = graph.nodes[*made];
    if (!is_anchor(graph, anchor)) continue;
    const Spec& output = anchor.outputs[0];
    if (output.shape.elements() != program->program().elements || !in_order[k]) continue;
    // The operands must live until here; the anchor's output need not any more.
    if (bytes_kept(graph, reads, *made, i) > output.bytes()) continue;
    auto inputs = anchor.inputs;
    for (size_t other = 0; other < n.inputs.size(); ++other)
      if (other != k) inputs.push_back(n.inputs[other]);
    n.op =
        with_epilogue({anchor.op, anchor.inputs.size(), output, graph.spec(n.inputs[k]).shape, program, k});
    n.inputs = std::move(inputs);
    for (const ValueRef& input : n.inputs) reads.add(i, input);
    return true;
  }
  return false;
}

/// Products of leaves that are rounded first round them themselves, once for each version of the leaves.
class RoundedLeaves {
 public:
  explicit RoundedLeaves(Graph& graph) : graph_(graph), rewriter_(graph) {}

  bool run() {
    bool changed = false;
    for (uint32_t i = 0, nodes = static_cast<uint32_t>(graph_.nodes.size()); i < nodes; ++i)
      changed |= take(i);
    rewriter_.finish();
    if (changed) dead_nodes(graph_);
    return changed;
  }

 private:
  bool take(uint32_t i) {
    GraphNode& n = rewriter_.node(i);
    const auto form = n.op->traits().matmul_form;
    if (!form || !is_op(*n.op, "matmul") || !has_bfloat16_products(n.outputs[0].dtype)) return false;
    if (!rounds_a_leaf(n.inputs[1]) || !is_computed_whole(n, *form)) return false;
    n.inputs[1] = before_rounding(i, n.inputs[1]);
    n.op = std::make_shared<RoundedMatmul>(*form);
    return true;
  }
  /// Whether a value is a conversion of a float32 leaf, with views below and above it.
  bool rounds_a_leaf(ValueRef v) {
    const auto below_views = [&](ValueRef value) {
      while (rewriter_.node(value.node).op->is_view()) value = rewriter_.node(value.node).inputs[0];
      return value;
    };
    const GraphNode& cast = rewriter_.node(below_views(v).node);
    return is_op(*cast.op, "cast") && rewriter_.spec(cast.inputs[0]).dtype == DType::float32 &&
           rewriter_.node(below_views(cast.inputs[0]).node).leaf.defined();
  }
  /// Whether oneDNN has a primitive for the product, of matrices without gaps.
  bool is_computed_whole(const GraphNode& n, MatmulForm form) {
    const Spec a = rewriter_.spec(n.inputs[0]), b{DType::float32, rewriter_.spec(n.inputs[1]).shape};
    const Layout of_a(a.shape), of_b(b.shape);
    const PlannedCall call{DeviceType::cpu, {&a, &b}, {&of_a, &of_b}, {n.outputs.begin(), n.outputs.size()}};
    return a.shape.elements() > 0 && n.outputs[0].shape.elements() > 0 &&
           Bfloat16Product::workspace_bytes(call, form).has_value();
  }
  /// What such a value shows, in float32.
  ValueRef before_rounding(uint32_t place, ValueRef v) {
    const GraphNode& n = rewriter_.node(v.node);
    if (!n.op->is_view()) return n.inputs[0];
    GraphNode view = n;
    view.inputs[0] = before_rounding(place, n.inputs[0]);
    for (Spec& output : view.outputs) output.dtype = DType::float32;
    return {rewriter_.add_before(place, std::move(view)), v.output};
  }

  Graph& graph_;
  GraphRewriter rewriter_;
};

}  // namespace

bool fuse_matmul(Graph& graph, const CompileOptions& options) {
  bool changed = graph.device == DeviceType::cpu && options.keeps_leaves(graph) && RoundedLeaves(graph).run();
  Reads reads(graph);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) changed |= take_in(graph, reads, i);
  if (changed) {
    let_updates_wait(graph, reads);  // an anchor now reads its operands later than before
    dead_nodes(graph);
  }
  return changed;
}

}  // namespace espalier
