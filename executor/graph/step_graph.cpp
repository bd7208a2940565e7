#include "espalier/executor/graph/step_graph.h"

namespace espalier {

StepGraph freeze(const StepTree& tree, const FeedSizes& rows, bool inference) {
  StepGraph step;
  std::vector<Variable> results;
  const auto add = [&](const Variable& result) {
    results.push_back(result);
    return results.size() - 1;
  };
  if (tree.loss.defined()) add(tree.loss);
  step.value = add(tree.value);
  if (tree.value_in_reals.defined()) step.value_in_reals = add(tree.value_in_reals);
  for (const Variable& output : tree.outputs) step.outputs.push_back(add(output));
  for (const size_t output : tree.recorded) step.recorded.push_back(step.outputs[output]);
  const size_t shown = results.size();
  for (const auto& [parameter, gradient] : tree.gradients) {
    step.parameters.push_back(parameter);
    add(gradient);
  }
  step.graph = freeze(results, tree.updates, rows, inference, tree.succeeded);
  step.gradients.assign(step.graph.results.begin() + static_cast<std::ptrdiff_t>(shown),
                        step.graph.results.end());
  step.graph.results.resize(shown);
  return step;
}

int64_t StepGraph::numbers() const {
  int64_t count = 1;
  for (const size_t result : recorded) count += graph.spec(graph.results[result]).shape.elements();
  return count;
}

}  // namespace espalier
