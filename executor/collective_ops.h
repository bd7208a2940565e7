// Collectives as operations with gradients, for models whose parts are computed by different ranks.
#pragma once
#include <memory>

#include "espalier/core/node.h"
#include "espalier/executor/communicator.h"

namespace espalier::distributed {

// All ranks build the same collectives in the same order, train the same of their operands, and ask for
// values alike; else CommunicatorError, on all ranks. Gradients are those of the sum of all ranks' results: a
// rank's loss reaches the operands of the others. The communicator is `world()` if none is given; the tree
// keeps it. On the CPU.

/// The reduction of all ranks' `x`, on each. Gradients for sum and mean; else UnsupportedError.
Variable all_reduce(const Operand& x, Reduction reduction = Reduction::sum,
                    std::shared_ptr<Communicator> communicator = nullptr);
/// All ranks' `x` along the first axis: [n, ...] becomes [ranks * n, ...]. ShapeError for scalars.
Variable all_gather(const Operand& x, std::shared_ptr<Communicator> communicator = nullptr);
/// Of the sum of all ranks' `x`, [ranks * n, ...], rank r gets part r of the first axis, [n, ...]. ShapeError
/// if it cannot be cut so.
Variable reduce_scatter(const Operand& x, std::shared_ptr<Communicator> communicator = nullptr);
/// The `x` of rank `root`, on each. The gradient goes to `root`, and is 0 elsewhere. IndexError.
Variable broadcast(const Operand& x, int root, std::shared_ptr<Communicator> communicator = nullptr);

}  // namespace espalier::distributed

namespace espalier {

/// Whether an op meets other ranks. In a graph each of them has the one before it as a further input that it
/// does not read: so they keep their order, and passes neither merge, fold, repeat nor remove them.
bool is_collective(const Op& op);

}  // namespace espalier
