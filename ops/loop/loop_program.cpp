#include "espalier/ops/loop/loop_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/scoped_value.h"
#include "espalier/ops/loop/scan_draws.h"

namespace espalier {

namespace {

thread_local int64_t steps_before = 0;  // those of the user's loop in front of the segment whose steps run

}  // namespace

std::string text_of_step(const LoopBody& body, int64_t step) {
  return fmt::format("{}step {} of the scan", body.gradient_of ? "the gradient of " : "", step);
}

Tensor element(const Tensor& x, int64_t t) {
  Layout layout;
  layout.shape = Shape(Dims(x.shape().begin() + 1, x.shape().end()));
  layout.strides = Dims(x.strides().begin() + 1, x.strides().end());
  layout.offset = x.layout().offset + t * x.strides()[0];
  return Tensor(x.storage(), std::move(layout), x.dtype());
}

LoopProgram::LoopProgram(LoopBodyPtr body, const std::vector<Spec>& specs,
                         std::span<const Tensor* const> beside, Device device, bool bound)
    : body_(std::move(body)), device_(device) {
  const OwnLines lines;
  for (size_t i = 0; i < body_->inputs.size(); ++i) {
    position_[body_->inputs[i].node()] = values_.size();
    if (i < specs.size())
      values_.push_back({own(Tensor(specs[i].shape, specs[i].dtype, device_))});
    else  // the same in all steps
      values_.push_back({const_cast<Tensor*>(beside[i - specs.size()])});
  }
  if (body_->random_nodes) draws_ = beside.back();
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
  const Specs inferred = located(node.where, [&] { return op.infer(pointers); });
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

void LoopProgram::read(size_t i, const Tensor& sequence, int64_t t) {
  copy_elements(element(sequence, t), input(i));
}

void LoopProgram::write(size_t i, Tensor& sequence, int64_t t) const {
  Tensor to = element(sequence, t);
  copy_elements(output(i), to);
}

void LoopProgram::begin() {
  if (draws_) streams_ = StepStreams(*draws_);
}

void LoopProgram::step(int64_t number, int64_t element, const StepWatch* watch) {
  const int64_t place = steps_before + body_->first_step + element * std::max<int64_t>(1, body_->segment);
  const ScopedValue<int64_t> segment(steps_before, body_->segment ? place : 0);
  const OwnLines lines;
  for (Call& call : calls_) try {
      if (call.draw) call.kernel.random = streams_.of(*call.draw, number);
      if (call.bound)
        call.bound->run(call.kernel.random);
      else
        backend(device_).run(*call.op, call.kernel);
    } catch (Error& error) {
      if (!body_->segment) error.add(", in " + text_of_step(*body_, place));
      error.locate(*call.kernel.where);
      throw;
    }
  if (watch) (*watch)(*this, place);
}

void LoopProgram::take_states() {
  for (size_t i = 0; i < next_.size(); ++i) copy_elements(output(i), next_[i]);
  for (size_t i = 0; i < body_->states; ++i) copy_elements(next_.empty() ? output(i) : next_[i], input(i));
}

}  // namespace espalier
