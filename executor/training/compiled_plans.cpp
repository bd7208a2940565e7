#include "espalier/executor/training/compiled_plans.h"

#include <algorithm>

#include "espalier/executor/training/row_buckets.h"

namespace espalier {

std::shared_ptr<const PlanData> CompiledPlans::get(const BatchSignature& batch, BatchShard shard,
                                                   bool inference) {
  const Key key{batch, shard.rows(setup_.feeds.batch_rows(batch)), shard.is_last_micro_batch(),
                setup_.owners && !inference ? shard.replica : 0, inference};
  const std::scoped_lock lock(mutex_);
  if (const auto* known = plans_.find(key)) return *known;
  return plans_.add(key, compile_step(setup_, batch, shard, inference));
}

ResultRows CompiledPlans::rows_of_results(const BatchSignature& batch) {
  const std::vector<int64_t>& buckets = setup_.options.buckets;
  if (std::ranges::count(buckets, setup_.feeds.batch_rows(batch)) == 0) return {};
  const std::scoped_lock lock(mutex_);
  if (const auto* known = rows_.find(batch)) return *known;
  return rows_.add(batch, espalier::rows_of_results(setup_, batch));
}

void CompiledPlans::clear() {
  const std::scoped_lock lock(mutex_);
  plans_.clear();
}

}  // namespace espalier
