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

/// For each device of this process and each of its micro-batches, a reader of every feed; placeholders have
/// the values that they were given.
class BatchReaders : public BatchSource {
 public:
  /// Reads `feeds`, and loads the plans' sources of `loaded`: the same object, or as many other feeds.
  /// `given` is read in each step.
  BatchReaders(const TreeFeeds& feeds, const TreeFeeds& loaded, const GivenValues& given, FeedShards& shards,
               Replicas& devices, int micro_batches);

  /// The next batch is that of this step, in the epochs that the feeds are in.
  void start(int64_t step);
  /// Whether the next batch is that of this step, and no feed has begun another epoch since `start`.
  bool is_before(int64_t step) const;
  void load(const BoundPlan& plan, Profiler* profiler) override;
  void advance() override { ++step_; }

 private:
  TreeFeeds feeds_, loaded_;
  const GivenValues& given_;
  bool same_feeds_;  // then columns that are on the device already need no loading
  struct Reader {
    std::unique_ptr<data::Prefetcher> batches;  // null for placeholders
    bool on_device = false;                     // the last step's batch was on the device, and was not read
  };
  std::vector<std::vector<Reader>> readers_;  // by plan, by feed
  int64_t step_ = 0;
  int64_t epochs_ = -1;
};

/// The signature of batches in which the values of placeholders have these shapes, which were given to
/// `what`. Throws DataError or ShapeError as GivenBatch does.
BatchSignature signature_of(const TreeFeeds& feeds, const FeedShapes& shapes, const char* what = "warm_up");

/// The values which `what`, a call for a tree that is fed, was given for its placeholders. Throws DataError,
/// TypeError or ShapeError unless they are values of all placeholders, each once, and of nothing else.
GivenValues given_beside(const TreeFeeds& feeds, const Feeds& given, const char* what);

/// The values that `Executor::run` was given for placeholders.
class GivenBatch : public BatchSource {
 public:
  /// Throws DataError, TypeError or ShapeError unless they are values of all placeholders, and of nothing
  /// else. The batch is filled up to the smallest of the buckets that holds it.
  GivenBatch(const TreeFeeds& feeds, const Feeds& given, const std::vector<int64_t>& buckets = {});
  /// That of the filled batch.
  const BatchSignature& signature() const { return signature_; }
  /// The rows that were given.
  int64_t rows() const { return rows_; }
  void load(const BoundPlan& plan, Profiler* profiler) override;

 private:
  const TreeFeeds& feeds_;
  std::vector<const Tensor*> values_;  // by feed
  std::vector<Tensor> filled_;         // by feed, if rows were added
  BatchSignature signature_;
  int64_t rows_;
};

}  // namespace espalier
