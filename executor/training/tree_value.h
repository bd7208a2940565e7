// TreeValue: what the tree and the outputs beside it were in the last step.
#pragma once
#include <exception>
#include <memory>
#include <vector>

#include "espalier/executor/training/batch_plans.h"
#include "espalier/executor/training/job.h"
#include "espalier/executor/training/setup.h"

namespace espalier {

/// Throws UnsupportedError if plans that compute shards of a batch do not have the tree's value of all rows,
/// or, if they are wanted, the outputs.
void check_has_values(const Setup& setup, const BatchPlans& plans, bool outputs);

/// Values lie in the memory of the plans that have run last, and are copied when they are asked for.
class TreeValue {
 public:
  TreeValue(const Setup& setup, const Job& job) : setup_(setup), job_(job) {}

  /// `rows`: those of the batch that the plans were run with, which may have been filled up. 0: nothing was
  /// added.
  void set(const std::shared_ptr<BatchPlans>& plans, int64_t rows = 0) {
    if (plans_ != plans) plans_ = plans;
    rows_ = rows;
  }
  /// Takes copies, before other plans use the memory.
  void keep();
  void clear();
  /// On the device of the tree's leaves. Throws Error before the first step, and UnsupportedError as
  /// `check_has_values` does.
  Tensor get() const { return find(0); }
  /// The same for an output, by its number.
  Tensor output(size_t number) const { return find(1 + number); }

 private:
  struct Kept {
    Tensor value;
    std::exception_ptr error;  // why there is none
  };

  // The tree's value is `which` 0, and then come the outputs.
  Tensor find(size_t which) const;
  Tensor copy(size_t which) const;
  Tensor gather_rows(size_t result) const;

  const Setup& setup_;
  const Job& job_;
  std::shared_ptr<const BatchPlans> plans_;  // null: there is only what was kept
  int64_t rows_ = 0;
  std::vector<Kept> kept_;
};

}  // namespace espalier
