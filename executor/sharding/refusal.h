// Why a tree cannot be cut over the parts of a batch, in words for its user.
#pragma once
#include <string>

#include "espalier/executor/sharding/batch_sharding.h"
#include "espalier/executor/sharding/shard.h"

namespace espalier {

/// What the parts of a batch's rows are called: "2 replicas".
std::string parts_of(const BatchShard& shard);

/// Throws UnsupportedError for a value that the parts cannot make up, naming the node that made it so.
[[noreturn]] void refuse(const Graph& graph, const BatchValue& value, const BatchShardings& shardings,
                         const ShardOptions& options);
/// Micro-batches come one after the other, and no node can read a mean or a sum over all of them.
void refuse_reductions(const Graph& graph, const ExchangedSharding& exchanged, const ShardOptions& options);

}  // namespace espalier
