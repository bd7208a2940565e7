// TreeValue: the value of the tree after the last step.
#pragma once
#include <exception>

#include "espalier/executor/training/batch_plans.h"
#include "espalier/executor/training/job.h"
#include "espalier/executor/training/setup.h"

namespace espalier {

/// Throws UnsupportedError if plans that compute shards of a batch do not have the tree's value of all rows.
void check_has_value(const BatchPlans& plans);

/// The value lies in the memory of the plans that have run last, and is copied when it is asked for.
class TreeValue {
 public:
  TreeValue(const Setup& setup, const Job& job) : setup_(setup), job_(job) {}

  void set(const BatchPlans& plans) { plans_ = &plans; }
  /// Takes a copy, before other plans use the memory.
  void keep();
  void clear();
  /// On the device of the tree's leaves. Throws Error before the first step, and UnsupportedError as
  /// `check_has_value` does.
  Tensor get() const;

 private:
  Tensor copy() const;
  Tensor gather_rows() const;

  const Setup& setup_;
  const Job& job_;
  const BatchPlans* plans_ = nullptr;  // null: there is only what was kept
  Tensor kept_;
  std::exception_ptr error_;  // why there is nothing
};

}  // namespace espalier
