// CompiledPlans: the plans of an executor before they are bound, for all threads that run it.
#pragma once
#include <mutex>
#include <tuple>

#include "espalier/core/kept_values.h"
#include "espalier/executor/training/lru_map.h"
#include "espalier/executor/training/setup.h"

namespace espalier {

/// Keeps as many plans as `ExecutorOptions::plan_cache` says.
class CompiledPlans {
 public:
  explicit CompiledPlans(const Setup& setup)
      : setup_(setup),
        plans_(static_cast<size_t>(setup.options.plan_cache)),
        rows_(static_cast<size_t>(setup.options.plan_cache)) {}

  /// The plan for a shard of batches of these sizes. While one thread compiles, others wait that need a plan
  /// which they have not bound yet. Throws what compiling throws.
  std::shared_ptr<const PlanData> get(const BatchSignature& batch, BatchShard shard, bool inference);
  /// See rows_of_results; empty unless the batch fills a bucket.
  ResultRows rows_of_results(const BatchSignature& batch);
  void clear();
  /// What kernels of these plans keep of leaves, in all threads.
  const std::shared_ptr<KeptValueStore>& kept() const { return kept_; }

 private:
  // Shards that differ in none of these share one plan: sizes of the batch, rows of the shard, whether it is
  // the last micro-batch, the replica where that matters, and inference.
  using Key = std::tuple<BatchSignature, int64_t, bool, int, bool>;

  const Setup& setup_;
  std::mutex mutex_;
  LruMap<Key, std::shared_ptr<const PlanData>> plans_;
  LruMap<BatchSignature, ResultRows> rows_;
  std::shared_ptr<KeptValueStore> kept_ = std::make_shared<KeptValueStore>();
};

}  // namespace espalier
