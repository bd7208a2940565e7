// Checks of sequences whose sizes or lengths come with a batch, in the name of the function that was called.
#pragma once
#include <string_view>

#include "espalier/core/variable.h"

namespace espalier {

/// Whether the first axis of x is open: its size comes with a batch.
bool has_open_steps(const Variable& x);
/// x [steps, …]. Throws ShapeError, naming `function`, for 0 steps, also of a batch that a plan is run with.
Variable checked_steps(const Variable& x, std::string_view function);
/// The lengths [batch] of sequences that are padded to the steps of x [steps, batch, …], as int64. Throws
/// TypeError unless they are int32 or int64, ShapeError for another shape and IndexError for a length outside
/// [0, steps], also of a batch that a plan is run with. All name `function`.
Variable checked_lengths(const Variable& lengths, const Variable& x, std::string_view function);

class OpRegistry;
void add_sequence_check_ops(OpRegistry& ops);

}  // namespace espalier
