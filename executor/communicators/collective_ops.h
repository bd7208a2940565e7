// Collectives as differentiable operations, for models whose parts are on different ranks.
#pragma once
#include <memory>

#include "espalier/core/node.h"
#include "espalier/executor/communicators/communicator.h"

namespace espalier::distributed {

// All ranks build the same collectives in the same order, differentiate the same operands, and evaluate the
// same results; else all throw CommunicatorError. Gradients are those of the sum of all ranks' results: a
// rank's loss contributes to the gradients on the others. Without a communicator it is `world()`; the tree
// keeps it.

/// The reduction of all ranks' `x`, on each. Gradients for sum and mean; else UnsupportedError.
Variable all_reduce(const Operand& x, Reduction reduction = Reduction::sum,
                    std::shared_ptr<Communicator> communicator = nullptr);
/// All ranks' `x` along the first axis: [n, ...] becomes [ranks * n, ...]. ShapeError for scalars.
Variable all_gather(const Operand& x, std::shared_ptr<Communicator> communicator = nullptr);
/// Part r, [n, ...], of the first axis of the sum of all ranks' `x`, [ranks * n, ...], on rank r. ShapeError
/// if the axis has no such parts.
Variable reduce_scatter(const Operand& x, std::shared_ptr<Communicator> communicator = nullptr);
/// The `x` of rank `root`, on each. The gradient goes to `root`, and is 0 elsewhere. IndexError.
Variable broadcast(const Operand& x, int root, std::shared_ptr<Communicator> communicator = nullptr);

}  // namespace espalier::distributed
