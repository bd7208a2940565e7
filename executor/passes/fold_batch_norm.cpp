// On a GPU: what batch normalization with running statistics multiplies by goes into the kernels of the
// convolution in front of it, and what it adds becomes a bias.
#include <optional>

#include "espalier/core/op_names.h"
#include "espalier/core/op_registry.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// Sums and products with a number for each channel, made of leaves, one behind the other.
struct Chain {
  SmallVector<uint32_t, 8> nodes;
  bool scales = false;
};

class ScaleFolding {
 public:
  explicit ScaleFolding(Graph& graph)
      : graph_(graph), rewriter_(graph), of_leaves_(made_of_leaves(graph)), reader_(graph.nodes.size()) {
    std::vector<int> readers(graph.nodes.size(), 0);
    for (const ValueRef& result : graph.results) readers[result.node] = 2;
    for (uint32_t i = 0; i < graph.nodes.size(); ++i)
      for (const ValueRef& input : graph.nodes[i].inputs) {
        ++readers[input.node];
        reader_[input.node] = i;
      }
    for (uint32_t i = 0; i < readers.size(); ++i)
      if (readers[i] != 1) reader_[i].reset();
  }

  bool run() {
    bool changed = false;
    for (uint32_t i = 0, nodes = static_cast<uint32_t>(graph_.nodes.size()); i < nodes; ++i)
      changed |= is_op(*graph_.nodes[i].op, "conv") && fold(i);
    if (!changed) return false;
    rewriter_.finish();
    dead_nodes(graph_);
    return true;
  }

 private:
  /// Kernels are scaled in each run, so this pays if they have fewer elements than the result.
  bool fold(uint32_t convolution) {
    const GraphNode& n = graph_.nodes[convolution];
    if (attribute<bool>(*n.op, "channels_last") ||
        graph_.spec(n.inputs[1]).shape.elements() > n.outputs[0].shape.elements())
      return false;
    const Chain chain = chain_behind(convolution);
    if (!chain.scales) return false;
    last_ = chain.nodes.back();
    std::optional<ValueRef> scale, bias;
    uint32_t before = convolution;
    for (const uint32_t node : chain.nodes) {
      step(node, before, scale, bias);
      before = node;
    }
    const size_t rank = n.outputs[0].shape.rank();
    const ValueRef kernels = add("multiply", {n.inputs[1], along_first_axis(*scale, rank)});
    GraphNode scaled = n;
    scaled.inputs[1] = kernels;
    ValueRef y{rewriter_.add_before(last_, std::move(scaled)), 0};
    if (bias) y = add("add", {y, *bias});
    rewriter_.replace({last_, 0}, y);
    return true;
  }

  Chain chain_behind(uint32_t convolution) const {
    const Spec& y = graph_.nodes[convolution].outputs[0];
    Chain chain;
    for (uint32_t before = convolution; reader_[before];) {
      const uint32_t i = *reader_[before];
      const GraphNode& n = graph_.nodes[i];
      const bool sums = is_op(*n.op, "add") || is_op(*n.op, "subtract"),
                 scales = is_op(*n.op, "multiply") || is_op(*n.op, "divide");
      if ((!sums && !scales) || n.tag != Tag::forward || !(n.outputs[0] == y)) break;
      const size_t other = n.inputs[0].node == before ? 1 : 0;
      if (other == 0 && (is_op(*n.op, "subtract") || is_op(*n.op, "divide"))) break;
      if (!of_leaves_[n.inputs[other].node] || !is_of_channels(graph_.spec(n.inputs[other]).shape, y.shape))
        break;
      chain.nodes.push_back(i);
      chain.scales |= scales;
      before = i;
    }
    return chain;
  }

  static bool is_of_channels(const Shape& operand, const Shape& y) {
    const size_t places = y.rank() - 2;
    return operand.elements() == 1 || (operand.rank() > places && operand.elements() == y.dims()[1] &&
                                       *(operand.end() - places - 1) == y.dims()[1]);
  }

  /// Takes one node of the chain into scale · (y + …) = scale · y + bias.
  void step(uint32_t node, uint32_t before, std::optional<ValueRef>& scale, std::optional<ValueRef>& bias) {
    const GraphNode& n = graph_.nodes[node];
    const std::string_view name = n.op->name();
    const ValueRef operand = n.inputs[n.inputs[0].node == before ? 1 : 0];
    if (name == "add" || name == "subtract") {
      if (bias)
        bias = add(name, {*bias, operand});
      else
        bias = name == "add" ? operand : add("negative", {operand});
      return;
    }
    if (bias) bias = add(name, {*bias, operand});
    if (scale)
      scale = add(name, {*scale, operand});
    else
      scale = name == "multiply" ? operand : add("reciprocal", {operand});
  }

  /// A number for each channel as [channels, 1, …] of that rank.
  ValueRef along_first_axis(ValueRef v, size_t rank) {
    std::vector<int64_t> shape(rank, 1);
    shape[0] = rewriter_.spec(v).shape.elements();
    GraphNode n;
    n.op = make_op("reshape", {{"shape", shape}});
    return add(std::move(n), {v});
  }
  ValueRef add(std::string_view op, std::initializer_list<ValueRef> inputs) {
    GraphNode n;
    n.op = make_op(op, {});
    return add(std::move(n), inputs);
  }
  /// In front of the end of the chain, where all operands are there.
  ValueRef add(GraphNode n, std::initializer_list<ValueRef> inputs) {
    InputSpecs specs;
    for (const ValueRef& input : inputs) {
      n.inputs.push_back(input);
      specs.push_back(&rewriter_.spec(input));
    }
    n.outputs = n.op->infer(specs);
    n.where = graph_.nodes[last_].where;
    return {rewriter_.add_before(last_, std::move(n)), 0};
  }

  Graph& graph_;
  GraphRewriter rewriter_;
  const std::vector<bool> of_leaves_;
  std::vector<std::optional<uint32_t>> reader_;  // the only one
  uint32_t last_ = 0;                            // of the chain that is being folded
};

}  // namespace

bool fold_batch_norm(Graph& graph, const CompileOptions& options) {
  if (!options.inference || graph.device == DeviceType::cpu) return false;
  return ScaleFolding(graph).run();
}

}  // namespace espalier
