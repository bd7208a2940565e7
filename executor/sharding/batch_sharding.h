// What the values of a tree are to its batch: whether replicas that have a share of the rows each can compute
// them, and what they must do to have what one device has.
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
  mean,         ///< the whole batch's value is the mean of the parts' values, each counted by its rows
  sum,          ///< the whole batch's value is the sum of the parts' values
  local,        ///< a statistic of the part's rows, in the place of one of the whole batch
  unshardable,  ///< none of these: each element depends on rows that others have
};

struct BatchValue {
  BatchSharding role = BatchSharding::replicated;
  /// Rows: the axis which they are on, and their order along it. `repeats` times the axis runs through
  /// `block_sizes`; for each of these through all rows, with so many positions for each. What came of the
  /// axes [rows, 3] is one turn of {3}, what came of [3, rows] three of {1}, and rows behind rows of twice
  /// the size are one of {1, 2}.
  size_t axis = 0;
  int64_t repeats = 1;
  Dims block_sizes = {1};
  /// Local and unshardable: the node that made it so.
  uint32_t cause = 0;
  /// Local: made of a part's sum, which is smaller than that of the batch.
  bool of_sums = false;

  /// Whether all repeats are alike, so that the axis could be cut into [repeats, rows, width].
  bool in_order() const { return block_sizes.size() == 1; }
};

/// The rows of the batches that two graphs were frozen with.
struct BatchSizes {
  int64_t part, other;
};

using BatchRoles = std::vector<std::vector<BatchValue>>;

/// The roles of all outputs of all nodes; updates have none (same). `part` and `other` are one tree frozen
/// with batches of two different sizes, so that the axes which differ are those of the batch. With
/// `local_statistics`, what is taken over the batch and given back to each row, as batch normalization does,
/// may be taken over a part's rows.
BatchRoles batch_sharding(const Graph& part, const Graph& other, BatchSizes sizes, bool local_statistics);

/// What must be done to a value before one of its readers reads it.
struct InputChange {
  enum class Kind : uint8_t {
    reduce,  ///< the parts' means or sums become the whole batch's
    weigh,   ///< it is multiplied by the part's fraction of the rows, so that all parts add up to it
  };
  uint32_t node, input;
  Kind kind;
};
/// Roles where values of the whole batch may be had, and what must be done for that.
struct ExchangedSharding {
  BatchRoles roles;
  std::vector<InputChange> changes;  ///< by rising nodes
  /// Nodes made of shapes alone, such as a number of rows, and the values which they have for all rows.
  std::vector<std::pair<uint32_t, Tensor>> constants;

  bool reduces() const;
};
/// `whole` is the one of both graphs that was frozen for all rows.
ExchangedSharding exchanged_sharding(const Graph& part, const Graph& other, BatchSizes sizes,
                                     const Graph& whole);

/// Marks the random nodes which draw for the rows of a batch, so that they can draw for a share of them.
/// Throws UnsupportedError for one that draws for mixed rows.
void mark_random_rows(Graph& part, const BatchRoles& roles);

}  // namespace espalier
