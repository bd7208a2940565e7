#include "espalier/core/with_assignment.h"

#include <fmt/format.h>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/first_input.h"
#include "espalier/core/leaf_substitutes.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/train_phase.h"

namespace espalier {

namespace {

/// Shows its first input. Evaluators see to the others.
struct WithAssignment : FirstInput {
  std::string_view name() const override { return "with_assignment"; }
  Specs infer(const InputSpecs& in) const override {
    if (in.size() == 3 && !(*in[1] == *in[2]))
      throw ShapeError(fmt::format("with_assignment: a leaf of {} {} cannot take a value of {} {}",
                                   espalier::name(in[1]->dtype), in[1]->shape.str(),
                                   espalier::name(in[2]->dtype), in[2]->shape.str()));
    return FirstInput::infer(in);
  }
};

/// A state as a node has read it that was computed before an eager assignment. Its value is set when it is
/// made; in plans it is the state, which they assign at the end.
struct Former : FirstInput {
  Former() : FirstInput(InputSet::all()) {}
  std::string_view name() const override { return "former"; }
};

struct Store : Op {
  Store() : Op({.only_copies = true}) {}
  std::string_view name() const override { return "store"; }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[0], *call.outputs[0]); }
};

/// It has no kernel: plans write the leaf.
struct WriteState : Op {
  WriteState() : Op({.effect = Effect::writes_leaf, .reads = InputSet::only(1)}) {}
  std::string_view name() const override { return "write_state"; }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
};

/// What is written: the leaf, or what is given in its place.
Variable written_leaf(const Variable& leaf) {
  const Variable written = substitute_of(leaf);
  const Op& op = written.node()->op();
  if (op.is_leaf() && !is_constant(op) && !is_trainable(op)) return written;
  throw Error(fmt::format("with_assignment: only a state() can be written by a forward pass, not a {}{}",
                          op.is_leaf() ? (is_constant(op) ? "constant" : "parameter or variable") : op.name(),
                          written.node() == leaf.node()
                              ? ""
                              : fmt::format(", which is given in place of '{}'", leaf.node()->op().name())));
}

}  // namespace

Variable with_assignment(const Variable& y, const Variable& state, const Variable& value,
                         std::source_location where) {
  return located(where, [&] {
    for (const Variable* v : {&y, &state, &value})
      if (!v->defined()) throw Error("with_assignment: an operand is an undefined Variable");
    if (in_inference_phase() && substitute_of(state).node() != state.node()) return y;
    const Variable leaf = written_leaf(state);
    if (value.dtype() != leaf.dtype())
      throw TypeError(fmt::format("with_assignment: a leaf of {} cannot take a value of {}",
                                  name(leaf.dtype()), name(value.dtype())));
    if (value.device() != leaf.device())
      throw DeviceError(fmt::format("with_assignment: the leaf is on {} and its value on {}; use to(device)",
                                    leaf.device().str(), value.device().str()));
    if (in_inference_phase()) return y;
    compute_all_waiting();
    const Variable result = apply(shared_op<WithAssignment>(), {&y, &leaf, &value}, where);
    const bool now = !value.node()->lazy && !y.node()->lazy && !build_context().lazy;
    if (now) assign_at_once(*result.node(), *leaf.node(), value.value().clone());
    return result;
  });
}

void assign_at_once(Node& order, Node& leaf, const Tensor& value) {
  const Tensor& before = leaf.outputs[0].value;
  auto& former = leaf.rare().former;
  std::erase_if(former, [](const auto& known) { return known.expired(); });
  if (before.defined()) {
    order.rare().replaced = std::make_shared<FormerValue>(
        FormerValue{std::max(leaf.id, leaf.version), order.id, leaf.bound ? before.clone() : before});
    former.push_back(order.rare().replaced);
  }
  assign(leaf, value);
}

Variable former_value(Node& state, uint64_t time) {
  for (const auto& weak : state.rare().former) {
    const auto known = weak.lock();
    if (!known || time < known->since || time > known->until) continue;
    Variable result(new Node(shared_op<Former>(), state.where));
    Node& node = *result.node();
    node.inputs.push_back(Edge(&state, 0));
    node.outputs.push_back({state.outputs[0].spec, known->value});
    node.depth = 1;
    node.tag = build_context().tag;
    node.use_value();  // which cannot be computed again
    return result;
  }
  return {};
}

Variable value_in_step(Node& state) {
  BuildContext now = build_context();
  now.lazy = true;
  const BuildScope scope(now);
  const Variable leaf(&state);
  return apply(shared_op<Former>(), {&leaf}, state.where);
}

void refuse_earlier_assignment(const Op& state, const std::source_location& later,
                               const std::source_location& earlier) {
  Error error(
      fmt::format("with_assignment: the step has assigned the state '{}' already on the line {}:{}, which "
                  "was written after this one; "
                  "ask for both in one forward()",
                  state.name(), later.file_name(), later.line()));
  error.locate(earlier);
  throw error;
}
void check_repeatable(const Op& op, const Op& state, const std::source_location& first,
                      const std::source_location& second) {
  if (op.effect() == Effect::none) return;
  Error error(
      fmt::format("with_assignment: one step assigns the state '{}' twice, here and on the line {}:{}, and "
                  "the second value depends on "
                  "the state through {}, which runs once in a step",
                  state.name(), first.file_name(), first.line(), op.name()));
  error.locate(second);
  throw error;
}

bool orders_assignment(const Op& op) { return &op == shared_op<WithAssignment>().get(); }
OpPtr store_op() { return shared_op<Store>(); }
OpPtr write_state_op() { return shared_op<WriteState>(); }
bool is_store(const Op& op) { return &op == store_op().get(); }

void add_assignment_ops(OpRegistry& ops) {
  ops.add<WithAssignment>(3);
  ops.add<Former>(1);
  ops.add<Store, WriteState>(Arity::passes_only());
}

}  // namespace espalier
