#include "espalier/executor/training/plan_cache.h"

#include <algorithm>
#include <tuple>

#include "espalier/ops/matmul/matmul_precision.h"

namespace espalier {

BatchPlans& PlanCache::find(const BatchRows& rows, bool validation) {
  auto& plans = validation ? validation_ : steps_;
  if (const auto known = plans.find(rows); known != plans.end()) return known->second;
  return plans.emplace(rows, make(rows, validation || !setup_.training())).first->second;
}

BatchPlans& PlanCache::at_step(int64_t step) {
  setup_.feeds.read_rows(step, rows_);
  return find(rows_);
}

void PlanCache::clear() {
  steps_.clear();
  validation_.clear();
}

BatchPlans PlanCache::make(const BatchRows& rows, bool inference) const {
  const int micro_batches = setup_.micro_batches(inference);
  // Shards that differ in none of these share one plan.
  std::map<std::tuple<int64_t, bool, size_t>, std::shared_ptr<const PlanData>> made;
  std::vector<BoundPlan> plans;
  for (size_t i = 0; i < devices_.size(); ++i)
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      const BatchShard shard = devices_.shard(i, micro_batch, micro_batches);
      auto& data = made[{rows.empty() ? 1 : shard.rows(*std::ranges::max_element(rows)),
                         shard.is_last_micro_batch(), setup_.owners && !inference ? i : 0}];
      if (!data) data = compile_step(setup_, rows, shard, inference);
      plans.push_back({.data = data, .shard = shard, .session = &devices_[i], .index = plans.size()});
    }
  const bool tf32 = setup_.options.precision == Precision::tf32;
  const MatmulPrecision precision = tf32 ? MatmulPrecision::tf32 : matmul_precision();
  devices_.run_in_turn([&](size_t i) {
    const MatmulPrecisionScope scope(precision);
    for (BoundPlan& plan : plans)
      if (plan.session == &devices_[i]) plan.runtime = plan.session->bind(plan.data, plan.shard);
  });
  return BatchPlans(devices_, std::move(plans), rows);
}

}  // namespace espalier
