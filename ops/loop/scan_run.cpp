#include "espalier/ops/loop/scan_run.h"

#include <algorithm>

namespace espalier {

namespace {

Spec element_spec(const Tensor& x) {
  return {x.dtype(), Shape(Dims(x.shape().begin() + 1, x.shape().end()))};
}

/// The specs of states and elements.
std::vector<Spec> specs_of_step(const LoopBody& body, const KernelCall& call) {
  std::vector<Spec> specs;
  for (size_t i = 0; i < body.states + body.sequences; ++i)
    specs.push_back(i < body.states ? call.inputs[i]->spec() : element_spec(*call.inputs[i]));
  return specs;
}
/// Those of the forward pass, from a call of the backward one.
std::vector<Spec> specs_of_forward(const LoopBody& forward, const LoopBody& backward,
                                   const KernelCall& call) {
  std::vector<Spec> specs;
  for (size_t i = 0; i < forward.states + forward.sequences; ++i)
    specs.push_back(element_spec(*call.inputs[backward.states + i]));
  return specs;
}

/// What all steps use.
std::span<const Tensor* const> beside(const LoopBody& body, const KernelCall& call) {
  const size_t loops = body.states + body.sequences;
  return {call.inputs.data() + loops, call.inputs.size() - loops};
}

int64_t steps_of(const LoopBody& body, const KernelCall& call) {
  return call.inputs[body.states]->shape()[0];
}

}  // namespace

ScanRun::ScanRun(LoopBodyPtr body, ScanForm form, const KernelCall& call, bool bound)
    : call_(call),
      form_(form),
      steps_(steps_of(*body, call)),
      program_(body, specs_of_step(*body, call), beside(*body, call), call.inputs[0]->device(), bound) {}

void ScanRun::run(const StepWatch* watch) {
  const LoopBody& body = program_.body();
  const size_t states = body.states;
  program_.begin();
  for (size_t i = 0; i < states; ++i) copy_elements(*call_.inputs[i], program_.input(i));
  for (int64_t k = 0; k < steps_; ++k) {
    const int64_t t = form_.reverse ? steps_ - 1 - k : k;
    for (size_t i = states; i < states + body.sequences; ++i) program_.read(i, *call_.inputs[i], t);
    for (size_t i = 0; form_.keeps && k % form_.keeps == 0 && i < states; ++i) {
      Tensor to = element(*call_.outputs[body.outputs.size() + i], form_.keeps == 1 ? t : k / form_.keeps);
      copy_elements(program_.input(i), to);
    }
    program_.step(body.backwards ? steps_ - 1 - k : k, t, watch);
    for (size_t i = states; i < body.outputs.size(); ++i) program_.write(i, *call_.outputs[i], t);
    program_.take_states();
  }
  for (size_t i = 0; i < states; ++i) copy_elements(program_.input(i), *call_.outputs[i]);
}

CheckpointedRun::CheckpointedRun(const LoopBodyPtr& forward, LoopBodyPtr backward, bool reverse,
                                 int64_t stride, const KernelCall& call, std::vector<Tensor> states,
                                 bool bound)
    : call_(call),
      reverse_(reverse),
      stride_(stride),
      steps_(call.inputs[backward->states + forward->states]->shape()[0]),
      forward_(forward, specs_of_forward(*forward, *backward, call), beside(*backward, call),
               call.inputs[0]->device(), bound),
      backward_(backward, specs_of_step(*backward, call), beside(*backward, call), call.inputs[0]->device(),
                bound),
      states_(std::move(states)) {}

void CheckpointedRun::run_again(int64_t begin, int64_t end) {
  const LoopBody& body = forward_.body();
  const size_t first = backward_.body().states;  // of the sequences of the backward pass
  for (size_t i = 0; i < body.states; ++i) forward_.read(i, *call_.inputs[first + i], begin / stride_);
  for (int64_t k = begin; k < end; ++k) {
    for (size_t i = 0; i < body.states; ++i) {
      Tensor to = element(states_[i], k - begin);
      copy_elements(forward_.input(i), to);
    }
    if (k + 1 == end) return;
    for (size_t i = body.states; i < body.states + body.sequences; ++i)
      forward_.read(i, *call_.inputs[first + i], place(k));
    forward_.step(body.backwards ? steps_ - 1 - k : k, place(k));
    forward_.take_states();
  }
}

void CheckpointedRun::run(const StepWatch* watch) {
  const LoopBody& body = backward_.body();
  const size_t states = body.states, kept = forward_.body().states;
  forward_.begin();
  backward_.begin();
  for (size_t i = 0; i < states; ++i) copy_elements(*call_.inputs[i], backward_.input(i));
  for (int64_t end = steps_; end > 0;) {
    const int64_t begin = (end - 1) / stride_ * stride_;
    run_again(begin, end);
    for (int64_t k = end; k-- > begin;) {
      for (size_t i = 0; i < body.sequences; ++i)
        if (i < kept)
          backward_.read(states + i, states_[i], k - begin);
        else
          backward_.read(states + i, *call_.inputs[states + i], place(k));
      backward_.step(body.backwards ? k : steps_ - 1 - k, place(k), watch);
      for (size_t i = states; i < body.outputs.size(); ++i) backward_.write(i, *call_.outputs[i], place(k));
      backward_.take_states();
    }
    end = begin;
  }
  for (size_t i = 0; i < states; ++i) copy_elements(backward_.input(i), *call_.outputs[i]);
}

}  // namespace espalier
