// Random numbers for a part of a batch.
#pragma once
#include "espalier/executor/sharding/batch_sharding.h"

namespace espalier {

/// Marks the random nodes which draw for the rows of a batch, so that they can draw for a shard of them.
/// Throws UnsupportedError for one whose rows are in another order.
void mark_random_rows(Graph& part, const BatchShardings& shardings);

}  // namespace espalier
