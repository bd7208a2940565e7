#include "espalier/ops/loop/loop_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/error.h"
#include "espalier/core/loop_operand.h"
#include "espalier/core/random_streams.h"
#include "espalier/core/train_phase.h"
#include "espalier/core/tree.h"
#include "espalier/ops/loop/scan_draws.h"
#include "espalier/ops/loop/scan_op.h"

namespace espalier {

namespace {

const Spec& spec_of(const Variable& x) { return x.node()->outputs[x.output()].spec; }
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
  const bool fits = op.effect() == Effect::none || op.is_random();
  if (fits && !orders_assignment(op) && !chooses_by_phase(op)) return;
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
    body_.inputs.push_back(loop_operand_like(outer));
    return made_[node] = body_.inputs.back().node();
  }

  LoopBody& body_;
  std::vector<Variable>& captured_;
  uint64_t begin_;
  std::map<Node*, Node*> made_;
  std::vector<Variable> kept_;
};

/// The specs of all values of a body.
class InferredBody {
 public:
  InferredBody(const LoopBody& body, const std::vector<Spec>& given) {
    const OwnLines lines;
    for (size_t i = 0; i < body.inputs.size() && i < given.size(); ++i)
      add(body.inputs[i].node(), {given[i]});
    for (const Node* node : body.nodes) {
      if (position_.find(node) != NodeMap::none) continue;
      if (node->is_leaf())
        add(node, {node->outputs[0].spec});
      else
        add(node, located(node->where, [&] { return node->op().infer(inputs(*node)); }));
    }
  }

  const Specs& specs(const Node* node) const { return known_[position_.find(node)]; }
  const Spec& spec(const Node* node, uint32_t output) const { return specs(node)[output]; }
  InputSpecs inputs(const Node& node) const {
    InputSpecs specs;
    for (const Edge& edge : node.inputs) specs.push_back(&spec(edge.node(), edge.output()));
    return specs;
  }

 private:
  void add(const Node* node, Specs specs) {
    position_.insert(node, static_cast<uint32_t>(known_.size()));
    known_.push_back(std::move(specs));
  }
  NodeMap position_;
  std::vector<Specs> known_;
};

/// The op in place of that of a node where nothing is trained, if its outputs are the same.
OpPtr op_for_inference(const Node& node) {
  InputSpecs in;
  for (const Edge& edge : node.inputs) in.push_back(&edge.spec());
  OpPtr op = node.op_;
  while (OpPtr calm = op->for_inference()) {
    const Specs specs = calm->infer(in);
    const auto same = [](const Spec& made, const Output& output) { return made == output.spec; };
    if (!std::equal(specs.begin(), specs.end(), node.outputs.begin(), node.outputs.end(), same)) break;
    op = std::move(calm);
  }
  return op;
}

}  // namespace

void LoopBody::finish() {
  TreeWalk walk;
  for (const Variable& y : outputs) walk.enter(y.node());
  nodes = nodes_below(std::move(walk));
  size = std::ssize(nodes);
  std::map<const Node*, size_t> numbered;
  for (const Node* node : nodes) {
    if (!node->is_leaf()) check_op(*node);
    if (node->op().is_random()) {
      const auto known = draws.find(node);
      numbered[node] = known != draws.end() ? known->second : random_nodes++;
    }
    for (const LoopBodyPtr& inner : {loop_body_of(node->op()), body_of_draws(node->op())}) {
      if (!inner) continue;
      depth = std::max(depth, inner->depth + 1);
      levels = std::max(levels, inner->levels + 1);
      size += inner->size;
    }
    if (depth > deepest)
      throw UnsupportedError(fmt::format("scan: more than {} loops are nested in each other", deepest));
    if (size > largest)
      throw UnsupportedError(fmt::format("scan: a step has more than {} nodes in its loops", largest));
  }
  if (gradient_of) levels = std::max(levels, gradient_of->levels + 1);
  if (levels > most_levels)
    throw UnsupportedError(
        fmt::format("scan: more than {} loops and gradients of loops are made of each other", most_levels));
  draws = std::move(numbered);
  static std::atomic<int64_t> finished{0};
  number = ++finished;
}

std::vector<Spec> LoopBody::of_step(const InputSpecs& loop) const {
  std::vector<Spec> step;
  for (size_t i = 0; i < loop.size(); ++i) {
    step.push_back(*loop[i]);
    if (i < states || i >= states + sequences) continue;
    const Shape& shape = loop[i]->shape;
    if (shape.rank() == 0) throw ShapeError("scan: a sequence is a scalar");
    if (shape[0] != loop[states]->shape[0])
      throw ShapeError(
          fmt::format("scan: sequences of {} and {} elements", loop[states]->shape[0], shape[0]));
    step.back().shape = Shape(Dims(shape.begin() + 1, shape.end()));
  }
  return step;
}

std::vector<Spec> LoopBody::infer(const std::vector<Spec>& given) const {
  if (given.size() != inputs.size())
    throw ShapeError(fmt::format("scan: {} operands, not {}", given.size(), inputs.size()));
  if (random_nodes && !(given.back() == draws_spec()))
    throw ShapeError(fmt::format("scan: the streams of its random numbers are {}, not {}",
                                 describe(given.back()), describe(draws_spec())));
  const InferredBody known(*this, given);
  std::vector<Spec> result;
  for (const Variable& y : outputs) result.push_back(known.spec(y.node(), y.output()));
  for (size_t i = 0; i < states; ++i) check_state(i, given[i], result[i]);
  return result;
}

std::vector<Specs> LoopBody::specs_of_nodes(const std::vector<Spec>& given) const {
  const InferredBody known(*this, given);
  std::vector<Specs> result;
  for (const Node* node : nodes) result.push_back(known.specs(node));
  return result;
}

std::vector<int64_t> LoopBody::streams(const std::vector<Spec>& given) const {
  const InferredBody known(*this, given);
  std::vector<int64_t> before(random_nodes + 1, 0);
  for (const Node* node : nodes)
    if (node->op().is_random()) {
      before[draws.at(node)] = before.back();
      before.back() += streams_of(node->op(), known.inputs(*node));
    }
  return before;
}

const LoopBodyPtr& LoopBody::for_inference() const {
  std::call_once(has_calm_, [&] { calm_ = written_for_inference(); });
  return calm_;
}

std::shared_ptr<LoopBody> LoopBody::written_for_inference() const {
  auto calm = std::make_shared<LoopBody>();
  std::map<const Node*, Node*> made;
  std::vector<Variable> kept;
  bool changed = false;
  for (Node* node : nodes) {
    const OpPtr op = node->is_leaf() ? node->op_ : op_for_inference(*node);
    std::vector<Variable> operands;
    bool rewritten = op != node->op_;
    for (const Edge& edge : node->inputs) {
      operands.push_back(Variable(made.at(edge.node()), edge.output()));
      rewritten |= operands.back().node() != edge.node();
    }
    changed |= rewritten;
    if (!rewritten) {
      made[node] = node;
    } else {
      BuildContext now = build_context();
      now.lazy = true;
      now.where = nullptr;
      now.tag = node->tag;
      now.no_grad = node->stops_gradient;
      const BuildScope scope(now);
      std::vector<const Variable*> addresses;
      for (const Variable& x : operands) addresses.push_back(&x);
      kept.push_back(apply(op, addresses, node->where));
      made[node] = kept.back().node();
    }
    if (const auto known = draws.find(node); known != draws.end() && op->is_random())
      calm->draws[made[node]] = known->second;
  }
  if (!changed) return nullptr;
  calm->states = states;
  calm->sequences = sequences;
  calm->inputs = inputs;
  for (const Variable& y : outputs) {
    const auto found = made.find(y.node());
    calm->outputs.push_back(Variable(found->second, y.output()));
  }
  calm->random_nodes = random_nodes;
  calm->backwards = backwards;
  calm->first_step = first_step;
  calm->segment = segment;
  if (gradient_of)
    calm->gradient_of = gradient_of->for_inference() ? gradient_of->for_inference() : gradient_of;
  calm->finish();
  return calm;
}

std::shared_ptr<LoopBody> trace_step(const ScanStep& step, const std::vector<Variable>& state,
                                     const std::vector<Variable>& sequences, std::vector<Variable>& captured,
                                     const CallSite& where) {
  const auto body = std::make_shared<LoopBody>();
  body->states = state.size();
  body->sequences = sequences.size();
  for (const Variable& s : state) body->inputs.push_back(loop_operand_like(s));
  for (const Variable& x : sequences) body->inputs.push_back(loop_operand_like(x, true));
  BuildContext lazy = build_context();
  lazy.lazy = true;
  lazy.no_grad = false;
  if (lazy.where == &where) lazy.where = nullptr;  // the line of this scan, and of no function around it
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
  const OwnLines lines;
  Rewriting rewriting(*body, captured, begin);
  rewriting.write(outputs);
  for (const Variable& y : outputs) body->outputs.push_back(rewriting.of(y));
  body->finish();
  if (body->random_nodes) body->inputs.push_back(loop_operand(body->draws_spec(), body->inputs[0].device()));
  return body;
}

}  // namespace espalier
