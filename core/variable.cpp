#include "espalier/core/variable.h"

#include <fmt/format.h>

#include <new>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "espalier/core/countable.h"
#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/leaf_substitutes.h"
#include "espalier/core/open_sizes.h"
#include "espalier/core/train_phase.h"
#include "espalier/core/values_later.h"

namespace espalier {

Variable::Variable(const Tensor& value, Where where) : Variable(make_leaf(constant_op(), value, where)) {}

Variable::Variable(detail::Number number, Where where)
    : Variable(make_leaf(number_op(number), located(where, [&] { return number.as(number.dtype); }), where)) {
}

Node& Variable::need() const {
  if (!node_) throw Error("an undefined Variable was used");
  return *node();
}

const Shape& Variable::shape() const {
  const Node& node = need();
  if (node.lazy && !build_context().where) return shape_for_users(node, output_);
  return node.outputs[output_].spec.shape;
}
DType Variable::dtype() const { return need().outputs[output_].spec.dtype; }
Device Variable::device() const { return need().outputs[output_].value.device(); }
int64_t Variable::depth() const {
  const Node& node = need();
  return node.waits && node.stops_gradient ? 0 : node.depth;  // as soon as it is computed it is a leaf
}

Tensor Variable::value(Where where) const {
  return located(where, [&] {
    need();
    ensure_value(*node());
    const Tensor& value = node()->outputs[output_].value;
    return node()->bound ? value.clone() : value;
  });
}

const Variable& Variable::forward(Where where) const {
  located(where, [&] {
    need();
    take_step(*node());
  });
  return *this;
}

void Variable::disconnect(Where where) {
  located(where, [&] {
    if (need().lazy)
      throw Error(fmt::format(
          "disconnect: this Variable ({}, shape {}) is downstream of a feed, and would keep the value of one "
          "step for ever; stop_gradient(x) has the value of each step and passes no gradient",
          node()->op().name(), shape().str()));
  });
  if (node()->is_leaf()) return;
  ensure_value(*node());
  if (node()->outputs.size() > 1) {  // the other outputs stay where they are
    *this = make_leaf(constant_op(), node()->outputs[output_].value, node()->where);
    return;
  }
  node()->record.reset();
  node()->outputs[0].spec = node()->outputs[0].value.spec();
  node()->cut(constant_op());
}

std::ostream& operator<<(std::ostream& out, const Variable& variable) {
  if (!variable.defined()) return out << "undefined";
  return out << variable.forward(variable.node()->where).value();
}

NoGrad::NoGrad() : before_(build_context().no_grad) { build_context().no_grad = true; }
NoGrad::~NoGrad() { build_context().no_grad = before_; }

void Operand::throw_undefined(std::string_view op) const {
  Error error(fmt::format("{}: an operand is an undefined Variable", op));
  error.locate(where_);
  throw error;
}

const Variable& Operand::as(DType dtype, Device device) const {
  if (variable_) return *variable_;
  owned_ = located(where_, [&] { return Variable(number_.as(dtype).to(device), where_); });
  variable_ = &owned_;
  return owned_;
}

namespace {

using ResultKernel = FunctionRef<void(Tensor&)>;
thread_local bool values_later = false;
thread_local const ResultKernel* result_kernel = nullptr;  // of the next node

/// What stands for the op in inference, if it makes the same outputs.
OpPtr calm_op(OpPtr op, std::span<const Variable* const> inputs) {
  while (OpPtr calm = op->for_inference()) {
    InputSpecs specs;
    for (const Variable* input : inputs) {
      if (!input->defined()) return op;
      specs.push_back(&input->node()->outputs[input->output()].spec);
    }
    if (calm->infer(specs) != op->infer(specs)) break;
    op = std::move(calm);
  }
  return op;
}

}  // namespace

namespace {

/// The inputs with what is read in their place; nothing if all are read themselves.
std::optional<std::vector<Variable>> with_substitutes(std::span<const Variable* const> inputs) {
  bool any = false;
  for (const Variable* input : inputs) any |= leaf_substitutes()->contains(input->node());
  if (!any) return std::nullopt;
  std::vector<Variable> read;
  for (const Variable* input : inputs) read.push_back(substitute_of(*input));
  return read;
}

}  // namespace

ValuesLater::ValuesLater() : scope_(values_later, true) {}

bool is_eager_on_cpu(const Variable& x) {
  return !x.node()->lazy && !x.node()->waits && !build_context().lazy && !deferring() &&
         x.device().type == DeviceType::cpu;
}

bool may_be_one_pass(std::initializer_list<const Variable*> operands) {
  bool needs_gradient = false, may_be_assigned = false;
  for (const Variable* x : operands) {
    const Node& node = *x->node();
    if (!is_eager_on_cpu(*x) || (x->dtype() != DType::float32 && x->dtype() != DType::float64)) return false;
    needs_gradient |= node.needs_gradient;
    may_be_assigned |= node.is_leaf() && !is_constant(node.op());
  }
  return !may_be_assigned || !needs_gradient || build_context().no_grad;
}

Variable apply_by(ResultKernel kernel, OpPtr op, std::initializer_list<const Variable*> inputs,
                  const std::source_location& where) {
  result_kernel = &kernel;
  return apply(std::move(op), inputs, where);
}

Variable apply(OpPtr op, std::span<const Variable* const> inputs, const CallSite& where, uint32_t last) {
  const ResultKernel* const kernel = std::exchange(result_kernel, nullptr);
  if (leaf_substitutes()) [[unlikely]]
    if (auto other = with_substitutes(inputs)) {  // computed from them by the op, not by the kernel
      const WithoutSubstitutes substituted;
      std::vector<const Variable*> read;
      for (const Variable& input : *other) read.push_back(&input);
      return apply(std::move(op), read, where);
    }
  BuildContext& now = build_context();
  const CallSite& line = now.where ? *now.where : where;
  if (in_inference_phase() && !kernel) op = calm_op(std::move(op), inputs);
  Variable result(new Node(std::move(op), line));
  Node& node = *result.node();
  try {
    InputSpecs specs;
    specs.reserve(inputs.size());
    node.inputs.reserve(inputs.size());
    bool lazy = now.lazy, needs_gradient = false;
    for (const Variable* input : inputs) {
      if (!input->defined())
        throw Error(fmt::format("{}: an operand is an undefined Variable", node.op().name()));
      const Node& from = *input->node();
      node.inputs.emplace_back(*input);
      specs.push_back(&from.outputs[input->output()].spec);
      lazy |= from.lazy;
      needs_gradient |= from.needs_gradient;
      node.depth = std::max(node.depth, from.depth + 1);
    }
    Specs outputs = node.op().infer(specs);
    node.op().check_small_integers(specs, outputs);
    for (const Spec& spec : outputs)
      if (!lazy) check_countable(spec.shape, node.op().name());
    const Device device =
        node.op().traits().output_device.value_or(inputs.empty() ? Device{} : inputs[0]->device());
    node.outputs.reserve(outputs.size());
    for (Spec& spec : outputs) node.outputs.emplace_back(std::move(spec), Tensor::to_come(device));
    node.lazy = lazy;
    if (lazy) follow_open_axes(node, specs);
    node.needs_gradient = needs_gradient && !now.no_grad && !node.op().traits().passes_no_gradient;
    node.stops_gradient = now.no_grad;
    node.tag = now.tag;
    if (is_deferred(node)) {
      node.use_inputs(node.op().traits().reads);
      return result;
    }
    if (!lazy && !values_later && deferring() && wait_for_value(node)) return result;
    if (kernel && !lazy) {
      const Spec& spec = node.outputs[0].spec;
      Tensor value(spec.shape, spec.dtype, device);
      (*kernel)(value);
      node.outputs[0].value = std::move(value);
      if (now.no_grad) node.cut(constant_op());
    } else if (!lazy && !values_later) {
      bool computed = false;
      for (const Edge& input : node.inputs)
        if (!input.value().defined() &&
            (node.op().reads_elements(static_cast<size_t>(&input - node.inputs.begin())) ||
             input.node()->waits || input.node()->batch || is_deferred(*input.node()))) {  // no shape either
          ensure_value(*input.node());
          computed = true;
        }
      if (computed) node.id = Node::next_id();  // above those of the nodes that have computed the inputs
      compute(node, last);
      if (now.no_grad) node.cut(constant_op());
    }
  } catch (Error& error) {
    error.locate(line);
    throw;
  } catch (const std::bad_alloc&) {
    OutOfMemory error(fmt::format("{}: the system has no memory left", node.op().name()));
    error.locate(line);
    throw error;
  }
  if (now.without_activations) return result;
  if (values_later && node.needs_gradient)  // what it is computed from then, perhaps for a gradient
    node.use_inputs(InputSet{node.op().traits().reads.bits | node.op().traits().gradient_reads.bits});
  else
    node.use_inputs();
  return result;
}

}  // namespace espalier
