// The kernels of buckets and of their arrival, in a plan that is one of several replicas.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "espalier/executor/exchange.h"
#include "espalier/executor/replication.h"

namespace espalier {

/// Where a session adds up what the parts of a batch give that it takes one after the other: for each bucket,
/// by its number in the plan.
using Accumulators = std::map<size_t, Tensor>;

/// A bucket's place in one replica's plan.
struct BucketCall {
  Tensor values;            ///< all of it
  size_t number = 0;        ///< among the plan's buckets
  int part = 0, parts = 1;  ///< of those which the replica takes one after the other
  int share = 0;            ///< of all parts of all replicas
  /// Between which each replica alone gets the sums; empty: all get all.
  std::vector<int64_t> bounds = {};
  std::source_location where;
};

/// `copy` brings into the bucket what lies elsewhere. Then the last part sends it, together with what the
/// others have left in the accumulators.
std::unique_ptr<BoundKernel> bind_bucket(std::unique_ptr<BoundKernel> copy, BucketCall call,
                                         const Replication& replication, Accumulators& accumulators,
                                         Exchange& exchange);
std::unique_ptr<BoundKernel> bind_arrival(bool last_part, Exchange& exchange);
/// `values` are the memory of all parameters that are updated, of which each replica has new values between
/// its bounds.
std::unique_ptr<BoundKernel> bind_gather(Tensor values, std::vector<int64_t> bounds,
                                         const std::source_location& where, Exchange& exchange);

}  // namespace espalier
