#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/open_sizes.h"
#include "espalier/core/tree.h"
#include "espalier/ops/loop/loop_gradient.h"
#include "espalier/ops/loop/scan_draws.h"
#include "espalier/ops/loop/scan_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/views/axis_views.h"

namespace espalier {

namespace {

Shape with_steps(int64_t steps, const Shape& shape) {
  Dims dims{steps};
  dims.append(shape.begin(), shape.end());
  return Shape(std::move(dims));
}

/// Inputs: states, sequences, and what the body uses beside them. Outputs: the last states, the outputs of
/// all steps, and the states in front of the steps, which only gradients need.
class Scan : public Op {
 public:
  Scan(LoopBodyPtr body, ScanForm form)
      : Op({.runs_on_host = true, .gradient_reads_output = true}), body_(std::move(body)), form_(form) {}
  std::string_view name() const override { return "scan"; }
  const LoopBodyPtr& body() const { return body_; }
  ScanForm form() const { return form_; }
  /// The number tells which bodies are the same.
  Attributes attributes() const override {
    return {{"body", body_->number}, {"reverse", form_.reverse}, {"keeps", form_.keeps}};
  }
  bool mixes(size_t, size_t, const InputSpecs&) const override { return true; }

  Specs infer(const InputSpecs& in) const override {
    if (in.size() != body_->inputs.size())
      throw ShapeError(fmt::format("scan: {} operands, not {}", in.size(), body_->inputs.size()));
    const std::vector<Spec> outputs = body_->infer(body_->of_step(in));
    const int64_t steps = in[body_->states]->shape[0];
    Specs all;
    for (size_t i = 0; i < outputs.size(); ++i)
      all.push_back(i < body_->states ? *in[i] : Spec{outputs[i].dtype, with_steps(steps, outputs[i].shape)});
    const int64_t kept = form_.keeps ? (steps + form_.keeps - 1) / form_.keeps : 0;
    for (size_t i = 0; i < body_->states; ++i) all.push_back({in[i]->dtype, with_steps(kept, in[i]->shape)});
    return all;
  }
  void run_cpu(const KernelCall& call) const override { ScanRun(body_, form_, call, false).run(); }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext&) const override {
    struct Bound : BoundKernel {
      Bound(LoopBodyPtr body, ScanForm form, const KernelCall& call)
          : run_all(std::move(body), form, call, true) {}
      void run(RandomStream) override { run_all.run(); }
      bool can_be_captured() const override { return false; }
      ScanRun run_all;
    };
    return std::make_unique<Bound>(body_, form_, call);
  }
  /// First the body for inference; then without the states, unless something reads them.
  std::shared_ptr<const Op> for_inference() const override {
    if (const LoopBodyPtr& calm = body_->for_inference()) return std::make_shared<Scan>(calm, form_);
    return form_.keeps ? std::make_shared<Scan>(body_, ScanForm{form_.reverse}) : nullptr;
  }

  Gradients gradient(const GradientRule& rule) const override {
    const size_t states = body_->states, loops = states + body_->sequences;
    std::vector<Variable> arriving;
    for (size_t k = 0; k < body_->outputs.size() + states; ++k) arriving.push_back(rule.output_gradient(k));
    std::vector<bool> wanted;
    for (size_t i = 0; i < rule.inputs(); ++i) wanted.push_back(rule.wants(i));
    const LoopGradient backward(body_, arriving, wanted);
    const Variable kept = with_states(rule);
    std::vector<Variable> inputs;
    for (size_t i = 0; i < states; ++i)
      if (backward.has_state(i))
        inputs.push_back(arriving[i].defined() ? arriving[i] : zeros_like(rule.input(i)));
    for (size_t i = loops; i < rule.inputs(); ++i)
      if (backward.has_captured(i)) inputs.push_back(zeros_like(rule.input(i)));
    for (size_t i = 0; i < states; ++i)
      inputs.push_back(Variable(kept.node(), static_cast<uint32_t>(body_->outputs.size() + i)));
    for (size_t i = states; i < loops; ++i) inputs.push_back(rule.input(i));
    for (size_t k = states; k < arriving.size(); ++k)
      if (backward.has_arriving(k)) inputs.push_back(arriving[k]);
    for (size_t i = loops; i < rule.inputs(); ++i) inputs.push_back(rule.input(i));
    std::vector<const Variable*> addresses;
    for (const Variable& x : inputs) addresses.push_back(&x);
    const Variable first =
        apply(scan_op(backward.body(), {.reverse = !form_.reverse}), addresses, rule.where());
    Gradients gradients;
    uint32_t at_state = 0, at_element = static_cast<uint32_t>(backward.body()->states);
    std::vector<Variable> of(rule.inputs());
    for (size_t i = 0; i < states; ++i)
      if (backward.has_state(i)) of[i] = Variable(first.node(), at_state++);
    for (size_t i = loops; i < rule.inputs(); ++i)
      if (backward.has_captured(i)) of[i] = Variable(first.node(), at_state++);
    for (size_t i = states; i < loops; ++i)
      if (backward.has_element(i)) of[i] = Variable(first.node(), at_element++);
    for (size_t i = 0; i < of.size(); ++i) gradients.push_back(wanted[i] ? of[i] : Variable());
    return gradients;
  }

 private:
  /// The scan with the states in front of its steps: itself, or else, for gradients of gradients, once more.
  Variable with_states(const GradientRule& rule) const {
    if (form_.keeps) return rule.output();
    std::vector<Variable> inputs;
    for (size_t i = 0; i < rule.inputs(); ++i) inputs.push_back(rule.input(i));
    std::vector<const Variable*> addresses;
    for (const Variable& x : inputs) addresses.push_back(&x);
    return apply(scan_op(body_, {form_.reverse, 1}), addresses, rule.where());
  }

  LoopBodyPtr body_;
  ScanForm form_;
};

ScanResult scan_once(const ScanStep& step, const std::vector<Variable>& state,
                     const std::vector<Variable>& sequences, bool reverse, const CallSite& where,
                     int64_t first_step = 0, int64_t segment = 0) {
  std::vector<Variable> inputs = state, captured;
  const std::shared_ptr<LoopBody> body = trace_step(step, state, sequences, captured, where);
  body->first_step = first_step;
  body->segment = segment;
  inputs.insert(inputs.end(), sequences.begin(), sequences.end());
  inputs.insert(inputs.end(), captured.begin(), captured.end());
  std::vector<const Variable*> addresses;
  bool keeps_states = false;
  for (const Variable& x : inputs) {
    addresses.push_back(&x);
    keeps_states |= x.node()->needs_gradient && !build_context().no_grad;
  }
  Variable draws;
  if (body->random_nodes) {
    draws = apply(scan_draws_op(body), addresses, where);
    addresses.push_back(&draws);
  }
  const Variable first = apply(scan_op(body, {reverse, keeps_states}), addresses, where);
  ScanResult result;
  for (size_t k = 0; k < body->outputs.size(); ++k)
    (k < body->states ? result.state : result.outputs)
        .push_back(Variable(first.node(), static_cast<uint32_t>(k)));
  return result;
}

/// The same by segments of steps, and what is left over behind them in the direction of the loop.
ScanResult scan_by_segments(const ScanStep& step, const std::vector<Variable>& state,
                            const std::vector<Variable>& sequences, const ScanOptions& options,
                            const CallSite& where) {
  const int64_t n = sequences[0].shape()[0], s = options.segment, whole = n / s, rest = n - whole * s;
  const auto part = [&](int64_t begin, int64_t end) {
    std::vector<Variable> parts;
    for (const Variable& x : sequences) parts.push_back(slice(x, 0, begin, end));
    return parts;
  };
  std::vector<Variable> segments;
  for (const Variable& x : part(options.reverse ? rest : 0, options.reverse ? n : whole * s))
    segments.push_back(unflatten(x, 0, {whole, s}));
  const ScanStep segment = [&](const std::vector<Variable>& h, const std::vector<Variable>& xs) {
    const CallScope scope(where);  // no code of the user's
    return scan_once(step, h, xs, options.reverse, scope.site());
  };
  ScanResult result =
      scan_once(segment, state, segments, options.reverse, where, options.reverse ? rest : 0, s);
  for (Variable& y : result.outputs) {
    Dims groups(y.rank() - 1, 1);
    groups[0] = 2;
    y = merge_axes(y, groups);
  }
  if (rest == 0) return result;
  const ScanResult last =
      scan_once(step, result.state, part(options.reverse ? 0 : whole * s, options.reverse ? rest : n),
                options.reverse, where, options.reverse ? 0 : whole * s);
  result.state = last.state;
  for (size_t i = 0; i < result.outputs.size(); ++i)
    result.outputs[i] = options.reverse ? concat({last.outputs[i], result.outputs[i]}, 0)
                                        : concat({result.outputs[i], last.outputs[i]}, 0);
  return result;
}

}  // namespace

ScanResult scan(const ScanStep& step, const std::vector<Variable>& state,
                const std::vector<Variable>& sequences, const ScanOptions& options,
                std::source_location where) {
  const CallScope scope(where);
  return located(*build_context().where, [&] {
    if (!step) throw Error("scan: the step is empty");
    if (sequences.empty()) throw Error("scan: there is no sequence");
    for (const Variable& s : state) (void)s.shape();  // an undefined Variable throws here
    for (const Variable& x : sequences) {
      if (x.rank() == 0) throw ShapeError("scan: a sequence is a scalar");
      if (x.shape()[0] != sequences[0].shape()[0])
        throw ShapeError(fmt::format("scan: sequences of shapes {} and {} have other lengths",
                                     sequences[0].shape().str(), x.shape().str()));
    }
    const int64_t n = sequences[0].shape()[0];
    if (options.segment < 0)
      throw Error(fmt::format("scan: segments of {} steps; they must not be negative", options.segment));
    if (options.segment > 1 && options.segment < n) {
      if (is_open_axis(sequences[0], 0))
        throw UnsupportedError("scan: the length is open; segments need its number");
      return scan_by_segments(step, state, sequences, options, scope.site());
    }
    return scan_once(step, state, sequences, options.reverse, scope.site());
  });
}

OpPtr scan_op(LoopBodyPtr body, ScanForm form) { return std::make_shared<Scan>(std::move(body), form); }

LoopBodyPtr loop_body_of(const Op& op) {
  const auto* loop = dynamic_cast<const Scan*>(&op);
  return loop ? loop->body() : nullptr;
}

bool watch_steps(const Op& op, const KernelCall& call, StepWatch watch) {
  const auto* loop = dynamic_cast<const Scan*>(&op);
  if (!loop) return watch_checkpointed(op, call, watch);
  ScanRun(loop->body(), loop->form(), call, false).run(&watch);
  return true;
}

ScanForm scan_form_of(const Op& scan) { return dynamic_cast<const Scan&>(scan).form(); }

bool is_loop(const Op& op) { return loop_body_of(op) || body_of_draws(op); }

void add_scan_op(OpRegistry& ops) {
  for (const auto op : {"scan", "scan_draws", "checkpointed_scan"}) ops.add_unsupported(op, "a body");
}

}  // namespace espalier
