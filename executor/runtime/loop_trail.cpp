#include "espalier/executor/runtime/loop_trail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/cpu/widen.h"
#include "espalier/core/op_names.h"
#include "espalier/executor/graph/graph.h"
#include "espalier/ops/loop/scan_op.h"

namespace espalier {

bool LoopTrail::can_follow(const Op& op) { return loop_body_of(op) || is_op(op, "checkpointed_scan"); }

LoopTrail::LoopTrail(const Op& loop, const KernelCall& call) : where_(call.where ? *call.where : CallSite()) {
  const bool wide = needs_widening(loop, call);  // the loop has computed in float32
  const auto type = [&](const Tensor& x) { return wide && is_half(x.dtype()) ? DType::float32 : x.dtype(); };
  std::vector<Tensor> inputs, outputs;
  for (const Tensor* x : call.inputs) inputs.push_back(type(*x) == x->dtype() ? *x : x->to(type(*x)));
  for (const Tensor* y : call.outputs) outputs.push_back(Tensor(y->shape(), type(*y), y->device()));
  KernelCall again = call;
  again.inputs.clear();
  again.outputs.clear();
  for (const Tensor& x : inputs) again.inputs.push_back(&x);
  for (Tensor& y : outputs) again.outputs.push_back(&y);
  (void)watch_steps(loop, again, [&](const LoopProgram& program, int64_t step) { note(program, step); });
}

void LoopTrail::note(const LoopProgram& program, int64_t step) {
  if (!body_) {
    body_ = &program.body();
    for (const Variable& x : body_->inputs) nodes_.push_back(x.node());
    for (const Node* node : body_->nodes)
      if (!input_of(node)) nodes_.push_back(node);
  }
  Step noted{step, {}, {}};
  for (const Node* node : nodes_) {
    position_[node] = noted.contents.size();
    bool finite = true;
    for (const Tensor* value : program.values(node)) {
      noted.contents.push_back(content_of(*value));
      finite &= noted.contents.back() == Content::finite;
    }
    if (!finite && can_follow(node->op())) note_loop(program, *node, noted);
  }
  steps_.push_back(std::move(noted));
}

void LoopTrail::note_loop(const LoopProgram& program, const Node& loop, Step& step) const {
  KernelCall call;
  call.where = &loop.where;
  for (const Edge& input : loop.inputs) call.inputs.push_back(program.values(input.node())[input.output()]);
  for (Tensor* output : program.values(&loop)) call.outputs.push_back(output);
  step.loops.emplace(&loop, LoopTrail(loop.op(), call));
}

Content LoopTrail::of(size_t step, const Edge& value) const {
  return steps_[step].contents[position_.at(value.node()) + value.output()];
}

std::optional<size_t> LoopTrail::input_of(const Node* node) const {
  for (size_t i = 0; i < body_->inputs.size(); ++i)
    if (body_->inputs[i].node() == node) return i;
  return std::nullopt;
}

std::optional<size_t> LoopTrail::first_step(const Edge& value, Content wanted) const {
  for (size_t s = 0; s < steps_.size(); ++s)
    if (of(s, value) >= wanted) return s;
  return std::nullopt;
}

std::optional<LoopTrail::Origin> LoopTrail::origin_of(size_t output, Content wanted) const {
  if (!body_) return std::nullopt;
  const size_t made = body_->outputs.size();
  if (output < body_->states) return walk(steps_.size() - 1, Edge(body_->outputs[output]));
  // What is behind the outputs are the states in front of the steps.
  const Edge value(output < made ? body_->outputs[output] : body_->inputs[output - made]);
  const std::optional<size_t> step = first_step(value, wanted);
  return step ? walk(*step, value) : std::nullopt;
}

std::optional<LoopTrail::Origin> LoopTrail::walk(size_t step, Edge value) const {
  for (;;) {
    const Content wanted = of(step, value);
    if (wanted == Content::finite) return std::nullopt;
    const Node& node = *value.node();
    if (const std::optional<size_t> i = input_of(&node)) {
      if (*i >= body_->states || step == 0) return Origin{.input = i};
      value = Edge(body_->outputs[*i]);
      --step;
      continue;
    }
    if (const auto loop = steps_[step].loops.find(&node); loop != steps_[step].loops.end())
      if (const auto inside = loop->second.origin_of(value.output(), wanted)) {
        if (!inside->input) return made_in_loop(step, node, *inside);
        if (const Edge& from = node.inputs[*inside->input]; of(step, from) != Content::finite) {
          value = from;
          continue;
        }
      }
    const auto from = std::ranges::find_if(node.inputs, [&](const Edge& x) { return of(step, x) >= wanted; });
    if (from == node.inputs.end()) return made_in(step, node, wanted);
    value = *from;
  }
}

LoopTrail::Origin LoopTrail::made_in(size_t step, const Node& node, Content wanted) const {
  Origin origin{.text = fmt::format("{}'{}' ({}){}", node.is_leaf() ? "the constant " : "", node.op().name(),
                                    line_of(node.where), place_of(step)),
                .made = !node.is_leaf(),
                .of_finite = true};
  for (const Edge& x : node.inputs) {
    if (of(step, x) == Content::finite) continue;
    origin.of_finite = false;
    if (wanted != Content::nan || origin.infinity) continue;
    if (auto infinity = walk(step, x)) origin.infinity = std::make_shared<Origin>(*std::move(infinity));
  }
  return origin;
}

std::optional<LoopTrail::Origin> LoopTrail::made_in_loop(size_t step, const Node& node,
                                                         const Origin& inside) const {
  Origin origin = inside;
  origin.text += place_of(step);
  if (!inside.infinity) return origin;
  if (const std::optional<size_t> input = inside.infinity->input) {
    const auto infinity = walk(step, node.inputs[*input]);
    origin.infinity = infinity ? std::make_shared<Origin>(*infinity) : nullptr;
  } else {
    Origin infinity = *inside.infinity;
    infinity.text += place_of(step);
    origin.infinity = std::make_shared<Origin>(std::move(infinity));
  }
  return origin;
}

/// Steps that are segments have no number of their own.
std::string LoopTrail::place_of(size_t step) const {
  if (body_->segment) return {};
  return fmt::format(" in {} ({})", text_of_step(*body_, steps_[step].number), line_of(where_));
}

}  // namespace espalier
