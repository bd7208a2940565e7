// Replication: what a plan that is one of several knows of the others.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "espalier/executor/sharding/state_owners.h"

namespace espalier {

/// The axis of a result that has the rows of the batch, and how often it runs through them (see BatchValue);
/// 0 times: not in their order.
struct RowAxis {
  size_t axis;
  int64_t repeats;
};
/// For each result; null: it does not depend on the rows.
using ResultRows = std::vector<std::optional<RowAxis>>;

/// How replicas share a batch and the states of its parameters.
struct Replication {
  int replicas = 1;        ///< devices that share the rows of a batch
  int micro_batches = 1;   ///< in which each of them takes its rows, one after the other
  int64_t batch_rows = 0;  ///< of all together
  /// Whether the loss is a mean over the batch, so that each replica counts by its rows; else it is a sum.
  bool averages = true;
  /// Without rows, all replicas have the whole of a result.
  ResultRows rows = {};
  /// If each replica keeps the states of its own parameters alone: which these are, and which replica this
  /// is.
  std::shared_ptr<const StateOwners> owners = {};
  int replica = 0;
};

}  // namespace espalier
