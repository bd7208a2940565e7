// An update: the values of its assignments are computed, and then assigned together.
#include <algorithm>

#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"

namespace espalier {

void run_update(Node& root, const GradientRecord::Update& update) {
  if (root.lazy && root.rare().step_failed)
    throw Error(
        "update: the last forward() of this Variable threw, so there is no step to learn from; call "
        "forward() again, or update after the step that succeeds");
  if (root.lazy) ensure_value(root);
  compute_all_waiting();
  std::vector<Node*> targets;
  std::vector<Variable> hold;  // so that no value is released before it is assigned
  std::vector<Node*> edits;    // of the leaves themselves: computed when all else is
  for (const Edge& assignment : update.assignments) {
    const Edge& value = assignment.node()->inputs[1];
    if (edits_leaf(*assignment.node())) {
      edits.push_back(value.node());
      for (size_t i = 1; i < value.node()->inputs.size(); ++i)
        hold.push_back(value.node()->inputs[i].variable());
    } else {
      hold.push_back(value.variable());
    }
  }
  for (const Variable& v : hold) targets.push_back(v.node());
  // All gradients are those of one point: what this update leaves to others is computed before it assigns.
  if (root.lazy)
    root.record->gradients.for_each([&](Node* leaf, uint32_t, const Edge& gradient) {
      const bool ours = std::ranges::count(update.parameters, leaf) > 0 && is_deferred(*gradient.node());
      if (is_trained(*leaf) && !ours) targets.push_back(gradient.node());
    });
  evaluate_at(targets, root);
  std::vector<std::pair<Node*, Tensor>> values;
  for (const Edge& assignment : update.assignments) {
    if (edits_leaf(*assignment.node())) continue;
    const Variable v = assignment.node()->inputs[1].variable();
    const Tensor& value = v.node()->outputs[v.output()].value;
    // A leaf's value is its own: it may be written in place by a plan.
    const bool computed = v.node()->tag == Tag::update && !v.node()->is_leaf() && !v.node()->op().is_view();
    bool own = computed && value.contiguous();
    for (const auto& [leaf, other] : values) own &= other.storage().get() != value.storage().get();
    values.emplace_back(assignment.node()->inputs[0].node(), own ? value : value.clone());
  }
  assign(values, edits);
  for (Node* target : targets)
    if (target->tag == Tag::update && !target->is_leaf()) target->clear_value();
}

}  // namespace espalier
