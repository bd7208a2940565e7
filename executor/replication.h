// Replication: how a plan is one of several that are trained as one.
#pragma once
#include <cstdint>
#include <vector>

namespace espalier {

/// What the replicas of a plan exchange in a step, once passes are done.
struct Replication {
  /// Values side by side that are added up over all replicas at once.
  struct Bucket {
    uint32_t node;  ///< they are complete, and under way, when it has run
    int64_t bytes;
  };
  int replicas = 1;
  int64_t batch_rows = 0;  ///< of all replicas together
  std::vector<Bucket> buckets;
  uint32_t arrival = 0;  ///< the node which waits for all of them
};

}  // namespace espalier
