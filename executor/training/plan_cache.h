// PlanCache: finds the plans for a batch, and makes them when a batch of their size first comes.
#pragma once
#include <map>

#include "espalier/executor/training/batch_plans.h"
#include "espalier/executor/training/setup.h"

namespace espalier {

/// Keeps plans by the rows of the batches that they are for, and apart for validation, which is inference.
class PlanCache {
 public:
  /// The leaves of the setup have been added to the devices.
  PlanCache(const Setup& setup, Replicas& devices) : setup_(setup), devices_(devices) {}

  /// The plans for the batches of that step of an epoch, and for batches with these rows. They are valid
  /// until `clear`. Throws what compiling and binding throw.
  BatchPlans& at_step(int64_t step);
  BatchPlans& find(const BatchRows& rows, bool validation = false);
  void clear();

 private:
  BatchPlans make(const BatchRows& rows, bool inference) const;

  const Setup& setup_;
  Replicas& devices_;
  std::map<BatchRows, BatchPlans> steps_, validation_;
  BatchRows rows_;  // of the last step; kept for its memory
};

}  // namespace espalier
