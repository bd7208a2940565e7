// Gradients of rows of a table, on replicas: each has the rows of its own samples.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/executor/graph/step_graph.h"
#include "espalier/executor/sharding/batch_sharding.h"

namespace espalier {

/// What replicas must do to have the terms of a gradient of rows (ops/indexing/rows.h) that one device has.
enum class RowExchange : uint8_t {
  none,          ///< all have them
  reduce_means,  ///< same rows; their values are the mean of those of the replicas, counted by their rows
  reduce_sums,   ///< same rows; their values are the sum of those of the replicas
  gather_means,  ///< rows of its samples each; the values count by its part of the batch
  gather,        ///< rows of its samples each
};
/// For each node that adds up rows, in their order: for each list of indices that it was joined of.
using RowExchanges = std::vector<std::vector<RowExchange>>;

/// `other` is the step frozen with a batch of another size. `whole_values`: `shardings` are those of values
/// of the whole batch, as where statistics are exchanged; else values are those of a part's loss, which is a
/// mean over the batch if `averages`, and a sum if not. Throws UnsupportedError for indices that are neither
/// the same for all nor some for each row of the batch.
RowExchanges row_exchanges(const Graph& part, const Graph& other, BatchSizes sizes,
                           const BatchShardings& shardings, bool whole_values, bool averages);
/// Lets the nodes that add up rows have those of all replicas.
void exchange_rows(Graph& graph, const RowExchanges& exchanges, int64_t part_rows, int64_t batch_rows);

}  // namespace espalier
