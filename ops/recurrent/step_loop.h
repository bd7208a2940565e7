// The steps of a recurrence as Variables.
#pragma once
#include <vector>

#include "espalier/core/variable.h"
#include "espalier/ops/recurrent/recurrence_call.h"

namespace espalier {

/// Takes steps out of what has rows for all, and carries states from step to step. Steps are counted in the
/// order in which they run.
class StepLoop {
 public:
  /// Over x, [steps, batch, …] or packed [rows, …]. Throws UnsupportedError, naming `what`, if the number of
  /// steps is that of an open axis.
  StepLoop(const Variable& x, const RecurrenceForm& form, std::string_view what);

  int64_t steps() const { return rows_.steps(); }
  /// The step's number in the order of the rows.
  int64_t position(int64_t k) const { return rows_.position(k); }
  /// The rows of a step.
  Variable of_step(const Variable& all, int64_t k) const;
  /// The rows of a state that a step has.
  Variable first_rows(const Variable& state, int64_t k) const;
  /// `next`, and the rows of `state` that the step does not have.
  Variable with_rows(const Variable& next, const Variable& state, int64_t k) const;
  /// The values of all steps, given in the order of running, as one.
  Variable joined(std::vector<Variable> steps) const;

 private:
  bool packed() const { return !form_.batch_sizes.empty(); }
  int64_t all_rows(int64_t k) const { return packed() ? form_.batch_sizes[0] : rows_.rows(k); }

  RecurrenceForm form_;
  StepRows rows_;
};

}  // namespace espalier
