// The ops behind with_assignment(), for evaluators and plans.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

class OpRegistry;
/// Whether an op is that of such an order: inputs y, leaf and value, or in a graph y alone.
bool orders_assignment(const Op& op);
/// Writes a state eagerly, for the node that orders it, which in NoGrad is a leaf; the value before stays as
/// long as that node does.
void assign_at_once(Node& order, Node& leaf, const Tensor& value);
/// A state as it was at that time, as a view of it; undefined if its value then is gone.
Variable former_value(Node& state, uint64_t time);
/// A state as the step reads it that is evaluated, as a view of it.
Variable value_in_step(Node& state);
/// In the graph of a step: a copy of the value, and what writes it into the leaf. No other op writes leaves
/// in the name of a forward pass.
OpPtr store_op();
OpPtr write_state_op();
bool is_store(const Op& op);
/// Throws the Error of an assignment that a step has come to after one which was written later, on these
/// lines.
[[noreturn]] void refuse_earlier_assignment(const Op& state, const std::source_location& later,
                                            const std::source_location& earlier);
/// Throws the Error of a second assignment whose value depends on the state through an op that a step runs
/// once.
void check_repeatable(const Op& op, const Op& state, const std::source_location& first,
                      const std::source_location& second);
void add_assignment_ops(OpRegistry& ops);

}  // namespace espalier
