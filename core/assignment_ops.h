// The ops behind with_assignment(), for evaluators and plans.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

class OpRegistry;
/// Whether an op is that of such an order: inputs y, leaf and value, or in a graph y alone.
bool orders_assignment(const Op& op);
/// In the graph of a step: a copy of the value, and what writes it into the leaf. No other op writes leaves
/// in the name of a forward pass.
OpPtr store_op();
OpPtr write_state_op();
bool is_store(const Op& op);
void add_assignment_ops(OpRegistry& ops);

}  // namespace espalier
