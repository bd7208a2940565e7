// Variable::backward: the gradients of a root, computed and kept.
#include <algorithm>

#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"

namespace espalier {

namespace {

/// Turns the gradients of leaves into leaves and lets go of everything between them and the root.
void clear_buffers(const Variable& root, GradientRecord& record) {
  if (root.node()->lazy) return;  // recomputed in each step
  std::vector<std::pair<Variable, Variable>> kept;
  record.gradients.for_each([&](Node* node, uint32_t output, const Edge& gradient) {
    if (is_trainable(node->op())) kept.emplace_back(Variable(node, output), gradient.variable());
  });
  for (auto& [leaf, gradient] : kept) {
    ensure_value(*gradient.node());
    if (!gradient.node()->is_leaf()) gradient.node()->cut(constant_op());
  }
  record.gradients.clear();
  std::sort(kept.begin(), kept.end(),
            [](const auto& a, const auto& b) { return a.first.node()->id > b.first.node()->id; });
  GradientTable::Run run;
  for (auto& [leaf, gradient] : kept)
    run.push_back({Edge(leaf), leaf.node()->id, leaf.output(), Edge(gradient), ValuePin(gradient.node())});
  record.gradients.add(std::move(run));
  if (root.node()->is_leaf()) return;
  ensure_value(*root.node());
  root.node()->cut(constant_op());
}

/// What backward() computes of a gradient: of one that is deferred, the operands.
void add_computed(const Edge& gradient, std::vector<Variable>& list) {
  const Node& node = *gradient.node();
  if (!is_deferred(node)) return list.push_back(gradient.variable());
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.op().reads_elements(i)) list.push_back(node.inputs[i].variable());
}

}  // namespace

Variable Variable::backward(BackwardOptions options, Where where) const {
  return located(where, [&] {
    BuildContext without_activations = build_context();
    without_activations.without_activations = true;
    const BuildScope now(without_activations);
    GradientRecord& record = differentiate(*this);
    if (node()->lazy && node()->has_value()) {
      std::vector<Variable> gradients;
      record.gradients.for_each([&](Node* node, uint32_t, const Edge& gradient) {
        if (is_trained(*node)) add_computed(gradient, gradients);
      });
      evaluate_at(gradients, *node());
    }
    if (options.clear_buffers) clear_buffers(*this, record);
    return *this;
  });
}

}  // namespace espalier
