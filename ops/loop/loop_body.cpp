#include "espalier/ops/loop/loop_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/error.h"
#include "espalier/core/loop_operand.h"
#include "espalier/core/train_phase.h"
#include "espalier/core/tree.h"
#include "espalier/ops/loop/scan_op.h"

namespace espalier {

namespace {

Spec spec_of(const Variable& x) { return {x.dtype(), x.shape()}; }
std::string describe(const Spec& x) { return fmt::format("{} {}", name(x.dtype), x.shape.str()); }

/// A step gives a state the dtype and shape that it has got.
void check_state(size_t i, const Spec& given, const Spec& made) {
  if (given == made) return;
  const std::string text =
      fmt::format("scan: state {} is {} and becomes {}", i, describe(given), describe(made));
  if (given.dtype != made.dtype) throw TypeError(text);
  throw ShapeError(text);
}

void check_op(const Node& node) {
  const Op& op = node.op();
  if (op.effect() == Effect::none && !orders_assignment(op) && !chooses_by_phase(op)) return;
  UnsupportedError error(fmt::format("scan: the step contains {}, which a loop cannot run", op.name()));
  error.locate(node.where);
  throw error;
}

/// Writes the nodes of a step again, over leaves in place of what is older than the step.
class Rewriting {
 public:
  Rewriting(LoopBody& body, std::vector<Variable>& captured, uint64_t begin)
      : body_(body), captured_(captured), begin_(begin) {
    for (const Variable& input : body.inputs) made_[input.node()] = input.node();
  }

  Variable of(const Variable& x) { return Variable(at(x.node()), x.output()); }
  void write(const std::vector<Variable>& outputs) {
    TreeWalk walk;
    for (const Variable& y : outputs)
      if (y.defined()) walk.enter(y.node());
    std::vector<Node*> nodes;
    while (Node* node = walk.next()) {
      if (made_.count(node) || node->is_leaf() || node->op().feed() || node->id < begin_) continue;
      check_op(*node);
      nodes.push_back(node);
      walk.enter_inputs(*node);
    }
    sort_by_age(nodes);
    for (Node* node : nodes) {
      std::vector<Variable> inputs;
      for (const Edge& edge : node->inputs) inputs.push_back(Variable(at(edge.node()), edge.output()));
      std::vector<const Variable*> addresses;
      for (const Variable& x : inputs) addresses.push_back(&x);
      kept_.push_back(apply(node->op_, addresses, node->where));
      made_[node] = kept_.back().node();
    }
  }

 private:
  /// The node in place of that one: itself, if it is a constant; else a leaf for each of its outputs, which
  /// have one each where they are captured.
  Node* at(Node* node) {
    if (const auto found = made_.find(node); found != made_.end()) return found->second;
    if (is_constant(node->op())) return node;
    if (node->outputs.size() > 1)
      throw UnsupportedError(fmt::format(
          "scan: the step uses an output of {}, which has several; give it as a state", node->op().name()));
    const Variable outer(node, 0);
    captured_.push_back(outer);
    body_.inputs.push_back(loop_operand(spec_of(outer), outer.device()));
    return made_[node] = body_.inputs.back().node();
  }

  LoopBody& body_;
  std::vector<Variable>& captured_;
  uint64_t begin_;
  std::map<Node*, Node*> made_;
  std::vector<Variable> kept_;
};

}  // namespace

void LoopBody::finish() {
  TreeWalk walk;
  for (const Variable& y : outputs) walk.enter(y.node());
  nodes = nodes_below(std::move(walk));
  size = std::ssize(nodes);
  for (const Node* node : nodes) {
    if (!node->is_leaf()) check_op(*node);
    if (const LoopBodyPtr inner = loop_body_of(node->op())) {
      depth = std::max(depth, inner->depth + 1);
      size += inner->size;
    }
    if (depth > deepest)
      throw UnsupportedError(fmt::format("scan: more than {} loops are nested in each other", deepest));
    if (size > largest)
      throw UnsupportedError(fmt::format("scan: a step has more than {} nodes in its loops", largest));
  }
  static std::atomic<int64_t> finished{0};
  number = ++finished;
}

std::vector<Spec> LoopBody::infer(const std::vector<Spec>& given) const {
  NodeMap position;
  std::vector<Specs> known;
  for (size_t i = 0; i < inputs.size(); ++i) {
    position.insert(inputs[i].node(), static_cast<uint32_t>(i));
    known.push_back({given[i]});
  }
  for (const Node* node : nodes) {
    if (position.find(node) != NodeMap::none) continue;
    InputSpecs specs;
    for (const Edge& edge : node->inputs) specs.push_back(&known[position.find(edge.node())][edge.output()]);
    position.insert(node, static_cast<uint32_t>(known.size()));
    Specs own;
    if (node->is_leaf())
      own.push_back(node->outputs[0].spec);
    else
      own = located(node->where, [&] { return node->op().infer(specs); });
    known.push_back(std::move(own));
  }
  std::vector<Spec> result;
  for (const Variable& y : outputs) result.push_back(known[position.find(y.node())][y.output()]);
  for (size_t i = 0; i < states; ++i) check_state(i, given[i], result[i]);
  return result;
}

LoopBodyPtr trace_step(const ScanStep& step, const std::vector<Variable>& state,
                       const std::vector<Variable>& sequences, std::vector<Variable>& captured) {
  const auto body = std::make_shared<LoopBody>();
  body->states = state.size();
  body->sequences = sequences.size();
  for (const Variable& s : state) body->inputs.push_back(loop_operand(spec_of(s), s.device()));
  for (const Variable& x : sequences) {
    Spec spec = spec_of(x);
    spec.shape = Shape(Dims(spec.shape.begin() + 1, spec.shape.end()));
    body->inputs.push_back(loop_operand(spec, x.device()));
  }
  BuildContext lazy = build_context();
  lazy.lazy = true;
  lazy.no_grad = false;
  const BuildScope scope(lazy);
  const auto split = body->inputs.begin() + static_cast<std::ptrdiff_t>(state.size());
  const uint64_t begin = Node::next_id();
  const ScanResult written = step(std::vector<Variable>(body->inputs.begin(), split),
                                  std::vector<Variable>(split, body->inputs.end()));
  if (written.state.size() != state.size())
    throw Error(
        fmt::format("scan: the step returns {} states; it gets {}", written.state.size(), state.size()));
  std::vector<Variable> outputs = written.state;
  outputs.insert(outputs.end(), written.outputs.begin(), written.outputs.end());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) throw Error("scan: the step returns an undefined Variable");
    if (i < state.size()) check_state(i, spec_of(state[i]), spec_of(outputs[i]));
  }
  Rewriting rewriting(*body, captured, begin);
  rewriting.write(outputs);
  for (const Variable& y : outputs) body->outputs.push_back(rewriting.of(y));
  body->finish();
  return body;
}

}  // namespace espalier
