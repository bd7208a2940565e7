// A step: what one run of a plan computes and writes, first as parts of a tree, then as a graph.
#pragma once
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "espalier/executor/graph/graph.h"

namespace espalier {

struct StepTree {
  Variable value;  ///< of the tree that is trained or evaluated
  /// A real scalar, where the value is none. Undefined: the value is the loss.
  Variable loss = {};
  /// The value as real numbers, where it has another type.
  Variable value_in_reals = {};
  /// Further values that the plan computes.
  std::vector<Variable> outputs = {};
  std::vector<Variable> updates = {};
  /// Parameters and their gradients, which then lie side by side. Empty: they lie wherever there is room.
  std::vector<std::pair<Variable, Variable>> gradients = {};
};

struct StepGraph {
  Graph graph;
  /// Positions in `graph.results`, which no pass changes.
  size_t loss = 0, value = 0;
  std::optional<size_t> value_in_reals = {};
  std::vector<size_t> outputs = {};
  /// Parameters and their gradients, until `gather_gradients` has put these into a bucket.
  std::vector<Variable> parameters = {};
  std::vector<ValueRef> gradients = {};
  /// On replicas: the results that are summed over all of them with the gradients (the loss, at least), and
  /// whether sums of gradients go to the owners of their parameters alone.
  std::vector<size_t> summed_results = {};
  bool scatters = false;

  bool sums(size_t result) const {
    return std::find(summed_results.begin(), summed_results.end(), result) != summed_results.end();
  }
};

StepGraph freeze(const StepTree& tree, const FeedRows& rows, bool inference);

}  // namespace espalier
