// Gradients of rows of a table, on replicas: each has the rows of its own samples.
#pragma once
#include "espalier/executor/graph/step_graph.h"
#include "espalier/executor/sharding/batch_sharding.h"

namespace espalier {

/// Lets updates by rows (ops/rows.h) have the rows of all replicas. `other` is the step frozen with a batch
/// of another size; `averages`: the loss is a mean over the batch, else a sum. Throws UnsupportedError for
/// indices whose number is not that of the batch's rows, or some for each.
void exchange_rows(StepGraph& step, const Graph& other, BatchSizes sizes, int64_t batch_rows, bool averages);

}  // namespace espalier
