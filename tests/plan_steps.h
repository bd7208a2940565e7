// Helpers of tests that compile values without an executor.
#pragma once
#include <utility>
#include <vector>

#include "espalier/executor/compile.h"

namespace espalier::testing {

/// A step whose plan has these results in this order; the first one is the loss.
inline StepTree step_of(const std::vector<Variable>& results, std::vector<Variable> updates = {},
                        std::vector<std::pair<Variable, Variable>> gradients = {}) {
  return {.value = results.at(0),
          .outputs = {results.begin() + 1, results.end()},
          .updates = std::move(updates),
          .gradients = std::move(gradients)};
}

}  // namespace espalier::testing
