#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/workspace.h"
#include "espalier/ops/loop/scan_op.h"

namespace espalier {

namespace {

class CheckpointedScan : public Op {
 public:
  CheckpointedScan(LoopBodyPtr body, bool reverse, int64_t stride)
      : Op({.runs_on_host = true}), body_(std::move(body)), reverse_(reverse), stride_(stride) {}
  std::string_view name() const override { return "checkpointed_scan"; }
  Attributes attributes() const override {
    return {{"body", body_->number}, {"reverse", reverse_}, {"stride", stride_}};
  }
  bool mixes(size_t, size_t, const InputSpecs&) const override { return true; }

  Specs infer(const InputSpecs& in) const override {
    const LoopBody& forward = *body_->gradient_of;
    const size_t first = body_->states, kept = forward.states;
    if (in.size() != body_->inputs.size())
      throw ShapeError(
          fmt::format("checkpointed_scan: {} operands, not {}", in.size(), body_->inputs.size()));
    const Shape& sequence = in[first + kept]->shape;
    if (sequence.rank() == 0) throw ShapeError("checkpointed_scan: a sequence is a scalar");
    std::vector<Spec> states;
    for (size_t i = first; i < first + kept; ++i) {
      states.push_back(*in[i]);
      if (states.back().shape.rank() == 0 || states.back().shape[0] != (sequence[0] + stride_ - 1) / stride_)
        throw ShapeError(fmt::format("checkpointed_scan: states of shape {} for {} steps",
                                     states.back().shape.str(), sequence[0]));
      states.back().shape.dims()[0] = sequence[0];
    }
    InputSpecs as_scan = in;
    for (size_t i = 0; i < kept; ++i) as_scan[first + i] = &states[i];
    const std::vector<Spec> step = body_->of_step(as_scan);
    const auto at = [&](size_t i) { return step.begin() + static_cast<std::ptrdiff_t>(i); };
    std::vector<Spec> forward_step(at(first), at(first + kept + forward.sequences));
    forward_step.insert(forward_step.end(), at(first + body_->sequences), step.end());
    (void)forward.infer(forward_step);
    return scan_op(body_, {.reverse = reverse_})->infer(as_scan);
  }

  int64_t workspace_bytes(const PlannedCall& call) const override {
    int64_t bytes = 0;
    for (const Spec& spec : segment_specs([&](size_t i) { return *call.inputs[i]; }))
      bytes += Workspace::bytes_for(spec);
    return bytes;
  }
  void run_cpu(const KernelCall& call) const override { make(call, Workspace(), false).run(); }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override {
    struct Bound : BoundKernel {
      explicit Bound(CheckpointedRun made) : run_all(std::move(made)) {}
      void run(RandomStream) override { run_all.run(); }
      bool can_be_captured() const override { return false; }
      CheckpointedRun run_all;
    };
    return std::make_unique<Bound>(make(call, Workspace::of(context), true));
  }

  void watch(const KernelCall& call, StepWatch watch) const { make(call, Workspace(), false).run(&watch); }

 private:
  /// Of the states of a segment; `given(i)` is the spec of an input.
  template <class F>
  std::vector<Spec> segment_specs(const F& given) const {
    std::vector<Spec> specs;
    const size_t kept = body_->gradient_of->states;
    const int64_t steps = given(body_->states + kept).shape[0];
    for (size_t i = 0; i < kept; ++i) {
      specs.push_back(given(body_->states + i));
      specs.back().shape.dims()[0] = std::min(stride_, steps);
    }
    return specs;
  }
  CheckpointedRun make(const KernelCall& call, Workspace workspace, bool bound) const {
    std::vector<Tensor> states;
    for (const Spec& spec : segment_specs([&](size_t i) { return call.inputs[i]->spec(); }))
      states.push_back(workspace.take(spec.shape, spec.dtype, call.inputs[0]->device()));
    return CheckpointedRun(body_->gradient_of, body_, reverse_, stride_, call, std::move(states), bound);
  }

  LoopBodyPtr body_;
  bool reverse_;
  int64_t stride_;
};

}  // namespace

bool watch_checkpointed(const Op& op, const KernelCall& call, StepWatch watch) {
  const auto* loop = dynamic_cast<const CheckpointedScan*>(&op);
  if (loop) loop->watch(call, watch);
  return loop;
}

OpPtr checkpointed_scan_op(LoopBodyPtr body, bool reverse, int64_t stride) {
  return std::make_shared<CheckpointedScan>(std::move(body), reverse, stride);
}

}  // namespace espalier
