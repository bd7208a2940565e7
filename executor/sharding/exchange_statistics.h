// Puts into a step what replicas exchange of the statistics of a batch.
#pragma once
#include "espalier/executor/graph/step_graph.h"
#include "espalier/executor/sharding/batch_sharding.h"

namespace espalier {

/// Makes the changes that `sharding` says: reductions over replicas where rows, or functions that are not
/// linear, read means and sums over the batch, in the forward pass as in the backward pass. Afterwards
/// gradients and summed results are sums over replicas. `fraction`: the replica's part of the batch's rows.
void exchange_statistics(StepGraph& step, const ExchangedSharding& sharding, double fraction);

}  // namespace espalier
