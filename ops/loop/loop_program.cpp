#include "espalier/ops/loop/loop_program.h"

#include "espalier/core/error.h"
#include "espalier/ops/loop/scan_draws.h"

namespace espalier {

namespace {

/// Element t of the first axis, in its buffer.
Tensor element(const Tensor& x, int64_t t) {
  Layout layout;
  layout.shape = Shape(Dims(x.shape().begin() + 1, x.shape().end()));
  layout.strides = Dims(x.strides().begin() + 1, x.strides().end());
  layout.offset = x.layout().offset + t * x.strides()[0];
  return Tensor(x.storage(), std::move(layout), x.dtype());
}

}  // namespace

LoopProgram::LoopProgram(LoopBodyPtr body, const KernelCall& call, bool reverse, bool keeps_states,
                         bool bound)
    : body_(std::move(body)),
      call_(call),
      reverse_(reverse),
      keeps_states_(keeps_states),
      device_(call.inputs[0]->device()) {
  const size_t loops = body_->states + body_->sequences;
  for (size_t i = 0; i < body_->inputs.size(); ++i) {
    const Tensor& given = *call.inputs[i];
    position_[body_->inputs[i].node()] = values_.size();
    if (i >= loops) {  // the same in all steps
      values_.push_back({const_cast<Tensor*>(call.inputs[i])});
      continue;
    }
    Dims shape(given.shape().begin() + (i >= body_->states ? 1 : 0), given.shape().end());
    values_.push_back({own(Tensor(Shape(std::move(shape)), given.dtype(), device_))});
  }
  for (const Node* node : body_->nodes)
    if (!position_.count(node)) add(*node, bound);
  for (const Variable& y : body_->outputs) outputs_.push_back(values_[position_.at(y.node())][y.output()]);
  bool is_state =
      false;  // a next state lies in the buffer of a state, which may be written before it is read
  for (size_t i = 0; i < body_->states; ++i)
    for (size_t k = 0; k < body_->states; ++k)
      is_state |= outputs_[i]->storage().get() == values_[k][0]->storage().get();
  for (size_t i = 0; is_state && i < body_->states; ++i)
    next_.push_back(Tensor(outputs_[i]->shape(), outputs_[i]->dtype(), device_));
}

void LoopProgram::add(const Node& node, bool bound) {
  position_[&node] = values_.size();
  if (node.is_leaf()) {
    values_.push_back({own(node.outputs[0].value.to(device_))});
    return;
  }
  const Op& op = node.op();
  Call call{&op, {}};
  if (op.is_random()) call.draw = body_->draws.at(&node);
  call.kernel.where = &node.where;
  SmallVector<Spec, 4> specs;
  specs.reserve(node.inputs.size());
  InputSpecs pointers;
  for (const Edge& edge : node.inputs) {
    const Tensor* input = values_[position_.at(edge.node())][edge.output()];
    call.kernel.inputs.push_back(input);
    specs.push_back(input->spec());
  }
  for (const Spec& spec : specs) pointers.push_back(&spec);
  const Specs inferred = op.infer(pointers);
  values_.emplace_back();
  if (op.is_view())
    if (const auto layout = op.view(call.kernel.inputs[0]->layout(), inferred[0])) {
      values_.back().push_back(own(Tensor(call.kernel.inputs[0]->storage(), *layout, inferred[0].dtype)));
      return;
    }
  for (const Spec& spec : inferred) {
    values_.back().push_back(own(Tensor(spec.shape, spec.dtype, device_)));
    call.kernel.outputs.push_back(values_.back().back());
  }
  if (bound) call.bound = located(node.where, [&] { return bind_kernel(op, call.kernel); });
  calls_.push_back(std::move(call));
}

void LoopProgram::run() {
  const size_t states = body_->states;
  const int64_t steps = call_.inputs[states]->shape()[0];
  StepStreams streams;
  if (body_->random_nodes) streams = StepStreams(*call_.inputs.back());
  for (size_t i = 0; i < states; ++i) copy_elements(*call_.inputs[i], *values_[i][0]);
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t t = reverse_ ? steps - 1 - k : k;
    for (size_t i = 0; i < body_->sequences; ++i)
      copy_elements(element(*call_.inputs[states + i], t), *values_[states + i][0]);
    for (size_t i = 0; keeps_states_ && i < states; ++i) {
      Tensor to = element(*call_.outputs[body_->outputs.size() + i], t);
      copy_elements(*values_[i][0], to);
    }
    for (Call& call : calls_) {
      if (call.draw) call.kernel.random = streams.of(*call.draw, body_->backwards ? steps - 1 - k : k);
      if (call.bound)
        call.bound->run(call.kernel.random);
      else
        backend(device_).run(*call.op, call.kernel);
    }
    for (size_t i = 0; i < body_->results(); ++i) {
      Tensor to = element(*call_.outputs[states + i], t);
      copy_elements(*outputs_[states + i], to);
    }
    for (size_t i = 0; i < next_.size(); ++i) copy_elements(*outputs_[i], next_[i]);
    for (size_t i = 0; i < states; ++i)
      copy_elements(next_.empty() ? *outputs_[i] : next_[i], *values_[i][0]);
  }
  for (size_t i = 0; i < states; ++i) copy_elements(*values_[i][0], *call_.outputs[i]);
}

}  // namespace espalier
