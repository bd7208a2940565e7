// Services for kernels that communicate with other replicas, which they find in the context they are bound
// in.
#pragma once
#include <functional>
#include <map>

#include "espalier/core/tensor.h"
#include "espalier/executor/communicators/gradient_sync.h"
#include "espalier/executor/sharding/batch_shard.h"
#include "espalier/executor/sharding/replication.h"

namespace espalier {

class Node;
struct StateOwners;

/// The sums that a session's micro-batches leave to the next one: for each bucket, by its number in the plan.
using Accumulators = std::map<size_t, Tensor>;

/// The services of a runtime whose plan is one of several replicas or micro-batches.
struct ReplicaServices {
  const Replication& replication;
  const StateOwners* owners;  ///< null if states are not sharded
  BatchShard shard;
  GradientSync& gradient_sync;
  Accumulators& accumulators;
  /// The bytes of the executor's leaves from one to the end of another.
  std::function<Tensor(const Node* first, const Node* last)> leaves;
  size_t buckets = 0;  ///< bound so far
};

}  // namespace espalier
