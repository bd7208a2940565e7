// PlanCache: finds the plans for a batch, and makes them when a batch of their size first comes.
#pragma once
#include <memory>

#include "espalier/executor/training/batch_plans.h"
#include "espalier/executor/training/compiled_plans.h"

namespace espalier {

/// Plans bound to the devices of one thread, by the sizes of the batches that they are for; those for
/// validation, which is inference, apart. Of each kind it keeps as many as `ExecutorOptions::plan_cache`
/// says.
class PlanCache {
 public:
  using Plans = std::shared_ptr<BatchPlans>;

  /// The leaves of the setup have been added to the devices.
  PlanCache(const Setup& setup, Replicas& devices, CompiledPlans& compiled)
      : setup_(setup),
        devices_(devices),
        compiled_(compiled),
        steps_(static_cast<size_t>(setup.options.plan_cache)),
        validation_(static_cast<size_t>(setup.options.plan_cache)) {}

  enum class For : uint8_t {
    steps,
    validation,
    warm_up,  ///< steps to come: products are measured in any case
  };
  /// The plans for the batches of that step of an epoch, and for batches of these sizes. The reference is
  /// valid until the next call. Throws what compiling and binding throw.
  const Plans& at_step(int64_t step, const GivenValues& given = {});
  const Plans& find(const BatchSignature& batch, For use = For::steps);
  /// Those used last; null if there are none.
  const Plans& last() const { return last_; }
  void clear();

 private:
  BatchPlans make(const BatchSignature& batch, For use, bool measures) const;

  const Setup& setup_;
  Replicas& devices_;
  CompiledPlans& compiled_;
  LruMap<BatchSignature, Plans> steps_, validation_;
  BatchSignature sizes_;  // of the last step; kept for its memory
  Plans last_;
  int made_ = 0;
};

}  // namespace espalier
