// BatchReaders: reads the batches of feeds ahead of their use, and loads them into plans.
#pragma once
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "espalier/data/prefetch.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/training/batch_plans.h"

namespace espalier {

/// The feeds as each shard of their batches sees them: always the same objects, by which sessions know what
/// they have of a feed.
class FeedShards {
 public:
  std::shared_ptr<const Feed> get(const std::shared_ptr<Feed>& feed, BatchShard shard);

 private:
  std::map<std::tuple<const Feed*, int, int>, std::shared_ptr<const Feed>> shards_;
};

/// For each device of this process and each of its micro-batches, a reader of every feed.
class BatchReaders : public BatchSource {
 public:
  /// Reads `feeds`, and loads the plans' sources of `loaded`: the same object, or as many other feeds.
  BatchReaders(const TreeFeeds& feeds, const TreeFeeds& loaded, FeedShards& shards, Replicas& devices,
               int micro_batches);

  /// The next batch is that of this step, in the epochs that the feeds are in.
  void start(int64_t step);
  /// Whether the next batch is that of this step, and no feed has begun another epoch since `start`.
  bool is_before(int64_t step) const;
  void load(const BoundPlan& plan, Profiler* profiler) override;
  void advance() override { ++step_; }

 private:
  TreeFeeds feeds_, loaded_;
  bool same_feeds_;  // then columns that are on the device already need no loading
  std::vector<std::vector<std::unique_ptr<data::Prefetcher>>> readers_;  // by plan, by feed
  int64_t step_ = 0;
  int64_t epochs_ = -1;
};

/// The values that `Executor::run` was given for placeholders.
class GivenBatch : public BatchSource {
 public:
  /// Throws DataError, TypeError or ShapeError unless they are values of all placeholders, and of nothing
  /// else.
  GivenBatch(const TreeFeeds& feeds, const Feeds& given);
  const BatchRows& rows() const { return rows_; }
  void load(const BoundPlan& plan, Profiler* profiler) override;

 private:
  const TreeFeeds& feeds_;
  std::vector<const Tensor*> values_;  // by feed
  BatchRows rows_;
};

}  // namespace espalier
