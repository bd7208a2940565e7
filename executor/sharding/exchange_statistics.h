// Puts into a step what replicas exchange of the statistics of a batch.
#pragma once
#include "espalier/executor/graph/step_graph.h"
#include "espalier/executor/sharding/batch_sharding.h"

namespace espalier {

/// Makes the changes that `sharding` says: reductions over replicas where rows, functions that are not
/// linear, or assignments of states read means and sums over the batch, in the forward pass as in the
/// backward pass. `fraction`: the replica's part of the batch's rows. `sums`: afterwards gradients and summed
/// results are sums over replicas; else they are what they were.
void exchange_statistics(StepGraph& step, const ExchangedSharding& sharding, double fraction, bool sums);

}  // namespace espalier
