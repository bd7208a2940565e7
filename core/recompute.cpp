#include "espalier/core/recompute.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/autograd.h"
#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/first_input.h"
#include "espalier/core/op_names.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/train_phase.h"
#include "espalier/core/tree.h"

namespace espalier {

namespace {

/// Inputs of which a node shows the first alone: the others are for evaluators.
bool shows_first(const Op& op) { return orders_assignment(op) || chooses_by_phase(op); }

bool is_former(const Op& op) { return is_op(op, "former"); }

/// The nodes below a root that lie before none of the ends, older ones first.
template <class IsEnd>
std::vector<Node*> nodes_between(Node* root, const IsEnd& is_end) {
  std::vector<Node*> nodes;
  TreeWalk walk(root);
  while (Node* node = walk.next()) {
    if (is_end(*node)) continue;
    nodes.push_back(node);
    if (shows_first(node->op()))
      walk.enter(node->inputs[0].node());
    else
      walk.enter_inputs(*node);
  }
  sort_by_age(nodes);
  return nodes;
}

/// Lets go of values that no handle and no other node needs: they are computed again if they are read.
void release_values(const std::vector<Edge>& nodes) {
  for (const Edge& edge : nodes) {
    Node& node = *edge.node();
    if (!node.is_leaf() && !node.op().is_random() && !node.has_handles() && node.value_uses() == 0)
      node.clear_value();
  }
}

/// A value that is written again for a gradient begins here: no pass merges it with what was written before.
class RecomputeInput : public Op {
 public:
  explicit RecomputeInput(int64_t block)
      : Op({.kind = OpKind::pointwise,
            .linearity = Linearity::together,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .gradient_reads = InputSet::none()}),
        block_(block) {}
  /// That of a block of which no other was written in this process.
  static OpPtr of_next_block() {
    static std::atomic<int64_t> blocks{0};
    return std::make_shared<RecomputeInput>(++blocks);
  }
  std::string_view name() const override { return "recompute_input"; }
  /// The number tells passes which values are those of the same block.
  Attributes attributes() const override { return {{"block", block_}}; }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[0], *call.outputs[0]); }
  Gradients gradient(const GradientRule& rule) const override { return {rule.output_gradient()}; }

 private:
  int64_t block_;
};

/// Another Variable that a block reads: gradients within the block end here.
struct RecomputeCapture : FirstInput {
  std::string_view name() const override { return "recompute_capture"; }
};

/// (y, x, captured…) -> y, which was made of the others without keeping what is between.
struct Recompute : Op {
  Recompute()
      : Op({.kind = OpKind::view,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .reads = InputSet::only(0),
            .gradient_reads = InputSet::all_but(0)}) {}
  std::string_view name() const override { return "recompute"; }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[0], *call.outputs[0]); }
  std::optional<Layout> view(const Layout& in, const Spec&) const override { return in; }
  std::optional<size_t> identity(const KnownInputs&, const Spec&) const override { return 0; }
  Gradients gradient(const GradientRule& rule) const override;
};

/// What was written between the inputs of a Recompute node, written again.
class Block {
 public:
  explicit Block(const GradientRule& rule) : rule_(rule) {
    for (size_t i = 1; i < rule.inputs(); ++i) begin(i);
    for (Node* node : nodes_between(rule.input(0).node(),
                                    [&](const Node& n) { return n.is_leaf() || begins_.contains(&n); }))
      write(*node);
  }

  ~Block() {
    std::vector<Edge> nodes;
    for (const Variable& v : written_) nodes.emplace_back(v);
    again_.clear();
    ends_.clear();
    written_.clear();
    release_values(nodes);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// The gradients of the inputs that are wanted, where y has this one.
  Gradients gradients(const Variable& g) const {
    const Variable y = mapped(rule_.input(0));
    std::vector<Variable> ends;
    for (size_t i = 1; i < rule_.inputs(); ++i)
      if (rule_.wants(i)) ends.push_back(ends_[i - 1]);
    const std::vector<Variable> found = gradients_between(y, g, ends, written_);
    // What waits to be computed with others would be computed from values of the block, which end with it.
    for (const Variable& gradient : found)
      if (gradient.defined() && !gradient.node()->lazy && !gradient.node()->waits)
        ensure_value(*gradient.node());
    Gradients result(rule_.inputs());
    for (size_t i = 1, k = 0; i < rule_.inputs(); ++i)
      if (rule_.wants(i)) result[i] = found[k++];
    return result;
  }

 private:
  using Key = std::pair<const Node*, uint32_t>;

  Variable mapped(const Variable& v) const {
    const auto known = again_.find({v.node(), v.output()});
    return known == again_.end() ? v : known->second;
  }
  void begin(size_t i) {
    const Variable v = rule_.input(i);
    Variable end = v;
    if (i == 1)
      end = apply(RecomputeInput::of_next_block(), {&v}, rule_.where());
    else if (!v.node()->is_leaf() && !v.node()->op().is_random())
      end = apply(shared_op<RecomputeCapture>(), {&v}, rule_.where());
    ends_.push_back(end);
    // A state that was assigned since comes as a view of what it was.
    const Edge read = is_former(v.node()->op()) ? v.node()->inputs[0] : Edge(v);
    begins_.insert(read.node());
    again_.emplace(Key{read.node(), read.output()}, end);
  }
  void write(Node& node) {
    std::vector<Variable> inputs;
    for (const Edge& input : node.inputs) inputs.push_back(mapped(input.variable()));
    if (shows_first(node.op())) {
      again_.emplace(Key{&node, 0}, inputs[0]);
      return;
    }
    std::vector<const Variable*> operands;
    for (const Variable& input : inputs) operands.push_back(&input);
    BuildContext now = build_context();
    now.where = nullptr;  // the line of the node
    now.no_grad |= node.stops_gradient;
    const BuildScope scope(now);
    const Variable first = apply(node.op_, operands, node.where);
    written_.push_back(first);
    for (uint32_t k = 0; k < node.outputs.size(); ++k)
      again_.emplace(Key{&node, k}, Variable(first.node(), k));
  }

  const GradientRule& rule_;
  std::set<const Node*> begins_;
  std::map<Key, Variable> again_;
  std::vector<Variable> ends_;     // of the inputs from the second on
  std::vector<Variable> written_;  // in order; handles keep their values meanwhile
};

Gradients Recompute::gradient(const GradientRule& rule) const {
  BuildContext now = build_context();
  now.without_activations = true;
  const BuildScope scope(now);
  return Block(rule).gradients(rule.output_gradient());
}

}  // namespace

Variable recompute(FunctionRef<Variable(const Variable&)> f, const Variable& x, std::source_location where) {
  return located(where, [&] {
    if (!x.defined()) throw Error("recompute: x is an undefined Variable");
    const uint64_t before = Node::next_id();
    BuildContext lean = build_context();
    const bool waits = deferring() && !x.node()->lazy;  // batches keep the values of all blocks
    lean.without_activations |= !waits;
    Variable y = [&] {
      const BuildScope scope(lean);
      return f(x);
    }();
    if (!y.defined()) throw Error("recompute: f has given an undefined Variable");
    if (build_context().no_grad || waits || !y.node()->needs_gradient || y.node()->id < before) return y;
    std::vector<Variable> inputs{y, x};
    std::vector<Edge> written{Edge(y)};
    const auto is_captured = [&](const Node& n) {
      return n.is_leaf() || n.op().is_random() || n.id < before || n.op().feed();
    };
    TreeWalk walk(y.node());
    std::vector<std::pair<const Node*, uint32_t>> seen{{x.node(), x.output()}};
    while (Node* node = walk.next()) {
      const bool first_alone = shows_first(node->op());
      for (size_t i = 0; i < (first_alone ? 1 : node->inputs.size()); ++i) {
        const Edge& input = node->inputs[i];
        if (std::ranges::count(seen, std::pair<const Node*, uint32_t>{input.node(), input.output()}))
          continue;
        if (!is_captured(*input.node())) {
          walk.enter(input.node());
          written.push_back(input);
          continue;
        }
        if (is_constant(input.node()->op())) continue;
        seen.emplace_back(input.node(), input.output());
        inputs.push_back(input.variable());
      }
    }
    std::vector<const Variable*> operands;
    for (const Variable& input : inputs) operands.push_back(&input);
    const Variable result = apply(shared_op<Recompute>(), operands, where);
    inputs.clear();
    y = Variable();
    release_values(written);
    return result;
  });
}

bool is_recomputed(const Op& op) { return &op == shared_op<Recompute>().get(); }

void add_recompute_ops(OpRegistry& ops) {
  ops.add<Recompute>(Arity::at_least(1));
  ops.add<RecomputeCapture>(1);
  ops.add("recompute_input", 1,
          [](AttributeReader& a) { return std::make_shared<RecomputeInput>(a.integer("block", 1)); });
}

}  // namespace espalier
