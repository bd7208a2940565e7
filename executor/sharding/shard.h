// Cuts a step over replicas: each computes its own rows of every batch, and sums meet in a bucket.
#pragma once
#include <memory>

#include "espalier/executor/graph/step_graph.h"
#include "espalier/executor/sharding/batch_shard.h"
#include "espalier/executor/sharding/replication.h"

namespace espalier {

struct ShardOptions {
  BatchShard shard = {};     ///< the rows that the plan takes
  int64_t batch_rows = 0;    ///< of all shards together
  int64_t bucket_bytes = 0;  ///< gradients are sent as soon as so many bytes are complete; 0: all at once
  bool local_statistics = false;  ///< see ReplicaOptions
  /// Where each replica keeps the states of its own parameters alone.
  std::shared_ptr<const StateOwners> owners = {};
  /// Batches of another size: the axes that have another size then are those of the batch.
  FeedSizes other_feeds = {};
  int64_t other_rows = 0;

  /// Whether this micro-batch leaves its gradients to the next one, and updates nothing.
  bool accumulates_only() const { return !shard.is_last_micro_batch(); }
};

/// Freezes a step. Throws UnsupportedError where shapes do not allow that a plan takes a shard of the rows.
StepGraph freeze_shard(const StepTree& tree, const FeedSizes& rows, bool inference,
                       const ShardOptions* options);

/// Finds out what replicas must do to have what one device has: which results are summed with the gradients,
/// and which random numbers, rows of the value and gradients each of them needs. Throws UnsupportedError
/// naming the node whose values replicas cannot compute from some of the rows.
Replication shard(StepGraph& step, const StepTree& tree, bool inference, const ShardOptions& options);

}  // namespace espalier
