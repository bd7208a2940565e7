#include "espalier/executor/training/plan_cache.h"

#include "espalier/executor/training/row_buckets.h"
#include "espalier/ops/matmul/matmul_precision.h"
#include "espalier/ops/matmul/tuning.h"

namespace espalier {

namespace {

/// Measuring the products of a plan takes as long as many steps. An executor whose batches keep having new
/// sizes stops after so many plans; products that were measured before keep their choice.
constexpr int most_measured = 16;

/// The precision of products of float32 in a plan.
MatmulPrecision matmul_precision_of(Precision precision) {
  if (precision == Precision::tf32) return MatmulPrecision::tf32;
  const MatmulPrecision usual = matmul_precision();
  return precision != Precision::float32 && usual == MatmulPrecision::ieee ? MatmulPrecision::mixed : usual;
}

}  // namespace

const PlanCache::Plans& PlanCache::find(const BatchSignature& batch, For use) {
  auto& plans = use == For::validation ? validation_ : steps_;
  const Plans* known = plans.find(batch);
  if (!known) {
    const bool measures = use == For::warm_up || (setup_.options.tune && made_ < most_measured);
    known = &plans.add(batch, std::make_shared<BatchPlans>(make(batch, use, measures)));
    ++made_;
  }
  if (use != For::validation && last_ != *known) last_ = *known;
  return *known;
}

const PlanCache::Plans& PlanCache::at_step(int64_t step, const GivenValues& given) {
  setup_.feeds.read_sizes(step, given, sizes_);
  if (!setup_.options.buckets.empty()) sizes_ = in_bucket(sizes_, setup_.feeds, setup_.options.buckets);
  return find(sizes_);
}

void PlanCache::clear() {
  steps_.clear();
  validation_.clear();
  last_.reset();
}

BatchPlans PlanCache::make(const BatchSignature& batch, For use, bool measures) const {
  const bool inference = use == For::validation || !setup_.training();
  const int micro_batches = setup_.micro_batches(inference);
  ResultRows rows = compiled_.rows_of_results(batch);  // before anything is made for a tree that is refused
  std::vector<BoundPlan> plans;
  for (size_t i = 0; i < devices_.size(); ++i)
    for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      const BatchShard shard = devices_.shard(i, micro_batch, micro_batches);
      plans.push_back({.data = compiled_.get(batch, shard, inference),
                       .shard = shard,
                       .session = &devices_[i],
                       .index = plans.size()});
    }
  const MatmulPrecision precision = matmul_precision_of(setup_.options.precision);
  devices_.run_in_turn([&](size_t i) {
    const MatmulPrecisionScope scope(precision);
    const TuneScope tuning(measures);
    for (BoundPlan& plan : plans)
      if (plan.session == &devices_[i]) plan.runtime = plan.session->bind(plan.data, plan.shard);
  });
  return BatchPlans(devices_, std::move(plans), setup_.feeds.batch_rows(batch), std::move(rows));
}

}  // namespace espalier
