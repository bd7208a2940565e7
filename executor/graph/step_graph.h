// A step: the values and updates of one run of a plan, first as a tree, then as a graph.
#pragma once
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "espalier/executor/graph/graph.h"

namespace espalier {

struct StepTree {
  Variable value;  ///< of the tree that is trained or evaluated
  /// The loss, a real scalar. Undefined: the value is the loss.
  Variable loss = {};
  /// The value cast to reals, if it has another type.
  Variable value_in_reals = {};
  /// Further values that the plan computes.
  std::vector<Variable> outputs = {};
  /// The numbers of those whose elements are recorded with the loss, in rising order.
  std::vector<size_t> recorded = {};
  std::vector<Variable> updates = {};
  /// A boolean scalar among the nodes of `updates`; if it is false, the forward pass writes no state.
  /// Undefined: it always does.
  Variable succeeded = {};
  /// Parameters and their gradients, to be placed side by side. Empty: the placement of gradients is free.
  std::vector<std::pair<Variable, Variable>> gradients = {};
};

struct StepGraph {
  Graph graph;
  /// Positions in `graph.results`, which no pass changes.
  size_t loss = 0, value = 0;
  std::optional<size_t> value_in_reals = {};
  std::vector<size_t> outputs = {};
  std::vector<size_t> recorded = {};  ///< those outputs whose elements are recorded with the loss

  /// How many numbers are recorded for each step: the loss, and behind it those elements.
  int64_t numbers() const;
  /// Parameters and their gradients, until `gather_gradients` puts the gradients into buckets.
  std::vector<Variable> parameters = {};
  std::vector<ValueRef> gradients = {};
  /// With replicas: the results that are summed over replicas together with the gradients (at least the
  /// loss), and whether sums of gradients go only to the owners of their parameters.
  std::vector<size_t> summed_results = {};
  bool scatters = false;

  bool sums(size_t result) const {
    return std::find(summed_results.begin(), summed_results.end(), result) != summed_results.end();
  }
};

StepGraph freeze(const StepTree& tree, const FeedSizes& rows, bool inference);

}  // namespace espalier
