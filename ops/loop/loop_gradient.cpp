#include "espalier/ops/loop/loop_gradient.h"

#include <algorithm>

#include "espalier/core/loop_operand.h"
#include "espalier/core/tree.h"
#include "espalier/ops/ops.h"

namespace espalier {

LoopGradient::LoopGradient(LoopBodyPtr forward_body, const std::vector<Variable>& arriving,
                           const std::vector<bool>& wanted)
    : forward_(std::move(forward_body)), wanted_(wanted) {
  const LoopBody& forward = *forward_;
  const size_t states = forward.states, loops = states + forward.sequences;
  for (const Variable& g : arriving) arriving_.push_back(g.defined());
  BuildContext lazy = build_context();
  lazy.lazy = true;
  lazy.no_grad = false;
  const BuildScope scope(lazy);
  const auto leaf_like = [](const Variable& x) { return loop_operand_like(x); };

  // A number whose gradients are those of the loss, from what arrives at the outputs of a step.
  std::vector<Variable> carried, of_outputs, terms;
  const auto meets = [&](const Variable& y, const Variable& g) {
    terms.push_back(cast(sum(y * g), float64));
  };
  for (size_t i = 0; i < states; ++i) {
    if (!has_state(i)) continue;
    carried.push_back(leaf_like(forward.inputs[i]));
    meets(forward.outputs[i], carried.back());
  }
  for (size_t k = states; k < arriving_.size(); ++k) {
    if (!arriving_[k]) continue;
    const size_t outputs = forward.outputs.size();
    of_outputs.push_back(leaf_like(k < outputs ? forward.outputs[k] : forward.inputs[k - outputs]));
    if (k < outputs) meets(forward.outputs[k], of_outputs.back());
  }
  Variable total;
  for (const Variable& term : terms) total = total.defined() ? total + term : term;
  NodeMap reached;
  if (total.defined())
    for (const Node* node : nodes_below(TreeWalk(total.node()))) reached.insert(node, 0);
  const auto gradient_of = [&](size_t input) {
    const Variable& x = forward.inputs[input];
    const bool depends = reached.find(x.node()) != NodeMap::none;
    return depends ? total.gradient(x) : zeros_like(x);
  };

  const auto body = std::make_shared<LoopBody>();
  std::vector<Variable> sums;
  for (size_t i = 0; i < states; ++i) {
    if (!has_state(i)) continue;
    Variable g = gradient_of(i);
    const size_t kept = forward.outputs.size() + i;  // the states in front of the steps are outputs, too
    if (arriving_[kept]) {
      const auto before = std::count(arriving_.begin() + static_cast<std::ptrdiff_t>(states),
                                     arriving_.begin() + static_cast<std::ptrdiff_t>(kept), true);
      g = g + of_outputs[static_cast<size_t>(before)];
    }
    body->outputs.push_back(g);
  }
  for (size_t i = loops; i < forward.inputs.size(); ++i) {
    if (!has_captured(i)) continue;
    sums.push_back(leaf_like(forward.inputs[i]));
    body->outputs.push_back(sums.back() + gradient_of(i));
  }
  for (size_t i = states; i < loops; ++i)
    if (has_element(i)) body->outputs.push_back(gradient_of(i));
  body->states = carried.size() + sums.size();
  body->inputs = std::move(carried);
  body->inputs.insert(body->inputs.end(), sums.begin(), sums.end());
  const auto split = forward.inputs.begin() + static_cast<std::ptrdiff_t>(loops);
  body->inputs.insert(body->inputs.end(), forward.inputs.begin(), split);
  body->inputs.insert(body->inputs.end(), of_outputs.begin(), of_outputs.end());
  body->sequences = body->inputs.size() - body->states;
  body->inputs.insert(body->inputs.end(), split, forward.inputs.end());
  body->draws = forward.draws;
  body->random_nodes = forward.random_nodes;
  body->backwards = !forward.backwards;
  body->first_step = forward.first_step;
  body->segment = forward.segment;
  body->gradient_of = forward_;
  body->finish();
  body_ = body;
}

}  // namespace espalier
