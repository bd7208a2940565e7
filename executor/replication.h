// Replication: how a plan is one of several that are trained as one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace espalier {

/// What the replicas of a plan exchange in a step, once passes are done.
struct Replication {
  /// Values side by side that are added up over all replicas at once.
  struct Bucket {
    uint32_t node;  ///< they are complete, and under way, when it has run
    int64_t bytes;
    bool scattered = false;  ///< each sum goes to the replica alone that owns it, where states are shared out
  };
  int replicas = 1;  ///< shares of the batch's rows, each of which runs the plan
  int parts = 1;     ///< of these, how many one device takes one after the other
  int devices() const { return replicas / parts; }
  int64_t batch_rows = 0;  ///< of all together
  /// Whether the loss is a mean over the batch, so that each replica counts by its rows; else it is a sum.
  bool averages = true;
  /// The axis of the tree's value that has the rows of the batch, and how often it runs through them (see
  /// BatchValue); without, all replicas have the whole value.
  std::optional<size_t> row_axis = {};
  int64_t row_turns = 1;
  /// Whether the value is exchanged, as the loss is: it is a mean or a sum over the batch.
  bool exchanges_value = false;
  std::vector<Bucket> buckets = {};
  uint32_t arrival = 0;  ///< the node which waits for all of them
};

}  // namespace espalier
