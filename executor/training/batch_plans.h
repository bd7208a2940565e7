// BatchPlans: the plans that compute one batch, bound to the devices of this process.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "espalier/executor/replicas/replicas.h"
#include "espalier/executor/report/profiler.h"
#include "espalier/executor/training/tree_feeds.h"

namespace espalier {

/// A plan bound to the memory of its device, for one shard of each batch.
struct BoundPlan {
  std::shared_ptr<const PlanData> data;
  BatchShard shard;
  Session* session = nullptr;
  std::unique_ptr<Runtime> runtime = nullptr;
  size_t index = 0;  ///< among the plans of its batch
};

/// Loads the rows of a batch that a plan computes into its memory.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// Called in the thread of the plan's device. The profiler is null except for the first device's plans.
  virtual void load(const BoundPlan& plan, Profiler* profiler) = 0;
  /// Moves on to the next batch, when all plans have run with this one.
  virtual void advance() {}
};

/// The plans for batches of one size: those of the first device, then of the next. On one device there is one
/// plan, or one for each micro-batch.
class BatchPlans {
 public:
  BatchPlans(Replicas& devices, std::vector<BoundPlan> plans, int64_t samples, ResultRows rows);

  /// Loads a batch into the plans and runs them, on all devices at once. Random nodes draw from the streams
  /// that begin at `first_stream`.
  void run(BatchSource& batch, uint64_t first_stream, Profiler* profiler);
  /// Makes what the first run would make and keep, on all devices.
  void prepare();

  /// The plan that ends the step of the first device.
  const BoundPlan& last() const { return plans_[plans_.size() / devices_->size() - 1]; }
  /// One plan of each device.
  const BoundPlan& of_device(size_t i) const { return plans_[plans_.size() / devices_->size() * i]; }
  size_t devices() const { return devices_->size(); }
  /// Rows of the batch.
  int64_t samples() const { return samples_; }
  /// Where the rows of the results are, if batches may be filled up; else empty.
  const ResultRows& rows() const { return rows_; }
  /// How many random streams a step takes.
  int64_t random_nodes() const { return plans_[0].runtime->random_nodes(); }

 private:
  Replicas* devices_;
  std::vector<BoundPlan> plans_;
  int64_t samples_;
  ResultRows rows_;
};

}  // namespace espalier
