#include "espalier/core/op_names.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/losses/cross_entropy.h"

namespace espalier {

namespace {

/// Matches pick(log_softmax(x), labels) and its gradient:
/// put(g, labels) - exp(log_softmax(x)) * sum(put(g, labels), -1).
class CrossEntropyFusion {
 public:
  explicit CrossEntropyFusion(Graph& graph) : graph_(graph) {}

  bool run() {
    bool changed = false;
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) changed |= forward(i) || backward(i);
    if (changed) dead_nodes(graph_);
    return changed;
  }

 private:
  struct Pick {
    ValueRef logits, logarithms, labels;
    uint32_t node;
  };
  bool is(ValueRef v, std::string_view name) const { return is_op(*graph_.nodes[v.node].op, name); }
  ValueRef input(ValueRef v, size_t k) const { return graph_.nodes[v.node].inputs[k]; }

  bool forward(uint32_t i) {
    GraphNode& n = graph_.nodes[i];
    if (!is({i, 0}, "pick") || !is(n.inputs[0], "log_softmax")) return false;
    const Pick pick{input(n.inputs[0], 0), n.inputs[0], n.inputs[1], i};
    if (graph_.spec(pick.labels).shape.elements() == 0 || graph_.spec(pick.logits).shape[-1] == 0)
      return false;
    n.op = log_softmax_pick(attribute<std::string>(*n.op, "function"));
    n.inputs = {pick.logits, pick.labels};
    const InputSpecs specs{&graph_.spec(pick.logits), &graph_.spec(pick.labels)};
    n.outputs = n.op->infer(specs);
    picks_[{pick.logarithms, pick.labels}].push_back(pick);
    return true;
  }

  bool backward(uint32_t i) {
    GraphNode& n = graph_.nodes[i];
    if (!is({i, 0}, "subtract") || !is(n.inputs[0], "put_like") || !is(n.inputs[1], "multiply")) return false;
    const ValueRef put = n.inputs[0], product = n.inputs[1];
    ValueRef probabilities = input(product, 0), sum = input(product, 1);
    if (is(sum, "exp")) std::swap(probabilities, sum);
    if (!is(probabilities, "exp") || !is(sum, "sum") || input(sum, 0) != put) return false;
    const Spec& spec = n.outputs[0];
    InputSpecs specs{&graph_.spec(put)};
    const auto folding = graph_.nodes[sum.node].op->folding(specs);
    if (!folding || folding->axes.size() != 1 ||
        folding->axes[0] != static_cast<int64_t>(spec.shape.rank()) - 1 ||
        graph_.spec(sum).shape.rank() != spec.shape.rank())
      return false;
    const auto known = picks_.find({input(probabilities, 0), input(put, 1)});
    if (known == picks_.end()) return false;
    for (const Pick& pick : known->second) {
      if (!(graph_.spec(input(put, 0)).shape == graph_.spec(pick.labels).shape)) continue;
      n.op = log_softmax_pick_gradient(attribute<std::string>(*graph_.nodes[pick.node].op, "function"));
      n.inputs = {pick.logits, {pick.node, 1}, pick.labels, input(put, 0)};
      return true;
    }
    return false;
  }

  Graph& graph_;
  std::map<std::pair<ValueRef, ValueRef>, std::vector<Pick>> picks_;  // by logarithms and labels
};

}  // namespace

bool fuse_cross_entropy(Graph& graph, const CompileOptions&) { return CrossEntropyFusion(graph).run(); }

}  // namespace espalier
