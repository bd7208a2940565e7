// What the values of a tree are to its batch: whether replicas can compute them from a shard of the rows
// each, and what they must do to have what one device has.
#pragma once
#include <string>
#include <vector>

#include "espalier/core/shape.h"
#include "espalier/executor/graph/graph.h"

namespace espalier {

/// What a value computed from some rows of a batch is to the value computed from all rows.
enum class BatchSharding : uint8_t {
  replicated,   ///< equal: it does not depend on the batch
  rows,         ///< the same rows of it, along one axis
  mean,         ///< the whole batch's value is the mean of the shards' values, each counted by its rows
  sum,          ///< the whole batch's value is the sum of the shards' values
  local,        ///< computed from the shard's rows, in the place of what the whole batch's rows would give
  unshardable,  ///< none of these: each element depends on rows of other shards
};

/// Why the parts of a batch cannot make up what a node computes.
enum class Obstacle : uint8_t {
  mixed_rows,         ///< it depends on rows of several parts
  positions,          ///< it takes what is at fixed positions along an axis of rows
  whole_in_rows,      ///< its rows read means or sums over the batch
  function_of_whole,  ///< it is a function of means or sums over the batch, which keeps neither
  grows,              ///< computed from a part's rows, it grows with their number
};

inline constexpr uint32_t no_node = UINT32_MAX;

struct BatchValue {
  BatchSharding sharding = BatchSharding::replicated;
  /// Rows: their axis, and their order along it. The axis is `repeats` sequences, one after the other. Each
  /// has a block for each number of `block_sizes`, and a block has all rows of the batch, with that many
  /// positions for each. Axes [rows, 3] that are merged have one repeat of {3}, [3, rows] three repeats of
  /// {1}. Rows with one position, concatenated with rows with two, have one repeat of {1, 2}.
  size_t axis = 0;
  int64_t repeats = 1;
  Dims block_sizes = {1};
  /// Local and unshardable: the node that made it so, and why. For a local value that grows with the number
  /// of rows: the first of the nodes it is made of that does.
  uint32_t cause = no_node;
  Obstacle obstacle = Obstacle::mixed_rows;
  /// Local: how it grows with the number of rows, see row_growth.h. A shard's sum is smaller than that of the
  /// batch.
  int8_t growth = 0;

  /// Whether it has to become a mean of the parts' values, if it is to be a result.
  bool is_refused() const { return sharding >= BatchSharding::local; }
  /// Whether all repeats are alike, so that the axis could be cut into [repeats, rows, width].
  bool in_order() const { return block_sizes.size() == 1; }
};

/// The rows of the batches that two graphs were frozen with.
struct BatchSizes {
  int64_t part, other;
};

using BatchShardings = std::vector<std::vector<BatchValue>>;

/// The shardings of all outputs of all nodes; those of updates say `replicated`. `part` and `other` are one
/// tree frozen with batches of two different sizes, so that the axes which differ are those of the batch.
/// With `local_statistics`, what is taken over the batch and given back to each row, as batch normalization
/// does, may be taken over a shard's rows, and what is none of rows, mean and sum is `local`.
BatchShardings batch_sharding(const Graph& part, const Graph& other, BatchSizes sizes, bool local_statistics);

/// What must be done to a value before one of its readers reads it.
struct InputChange {
  enum class Kind : uint8_t {
    reduce,  ///< the shards' means or sums become the whole batch's
    weigh,   ///< it is multiplied by the shard's fraction of the rows, so that all shards add up to it
  };
  uint32_t node, input;
  Kind kind;
};
/// Shardings where values of the whole batch may be had, and what must be done for that.
struct ExchangedSharding {
  BatchShardings shardings;
  std::vector<InputChange> changes;  ///< by rising nodes
  /// Nodes made of shapes alone, such as a number of rows, and the values which they have for all rows.
  std::vector<std::pair<uint32_t, Tensor>> constants;

  bool reduces() const;
};
/// `whole` is the one of both graphs that was frozen for all rows.
ExchangedSharding exchanged_sharding(const Graph& part, const Graph& other, BatchSizes sizes,
                                     const Graph& whole);

}  // namespace espalier
