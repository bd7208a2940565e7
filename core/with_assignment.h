// State that a forward pass updates: running statistics, counts of steps.
#pragma once
#include <source_location>

#include "espalier/core/variable.h"

namespace espalier {

/// `y`, and with it an order: whenever a step computes what is returned, `leaf`, a state, gets `value` at the
/// end of that step. All that the step computes, its gradients included, sees the state of before it.
/// Gradients pass through `y` alone.
///
/// Eagerly the leaf is written at once, and gradients of what has read it are computed with the value before
/// as long as what is returned lives. Downstream of a feed it is written once for each evaluation of a step
/// that computes it, and not when a value that was released is computed again. A plan of training writes it
/// in every step, one of inference, also for validation, never. A step that holds two orders for one leaf is
/// refused with an Error that names both lines: neither could see the other's value.
///
/// On replicas `value` may be made of means and sums over the batch, which they exchange; with
/// `local_statistics` the leaf gets the mean of the replicas' own, each counted by its rows. Micro-batches
/// (`.accumulate`) exchange nothing: `value` is a mean or a sum, or with `local_statistics` one of their own.
/// Else get_executor throws UnsupportedError with the line that makes the value.
///
/// Throws Error if `leaf` is no state, ShapeError or TypeError if `value` does not fit it, DeviceError if it
/// is elsewhere.
Variable with_assignment(const Variable& y, const Variable& leaf, const Variable& value,
                         std::source_location where = std::source_location::current());

}  // namespace espalier
