// When and how nodes get their values.
//
// Eager nodes compute as they are made. Lazy nodes (downstream of a feed) compute when asked: one evaluation
// shows one step of every feed, runs each node once, in the order of writing, and leaves its stamp on what it
// computed.
#pragma once
#include "espalier/core/record.h"

namespace espalier {

/// Runs the op of a node whose inputs have values. Throws what the kernel throws; the node is then as it was.
/// Bit i of `last` allows to write over input i, if its value ends with the handle on it.
void compute(Node& node, uint32_t last = 0);
/// Computes the value if there is none; lazy nodes at the step which their feeds show.
void ensure_value(Node& node);
/// Computes these nodes at the step which `root` shows.
void evaluate_at(const std::vector<Variable>& variables, Node& root);
/// Computes a lazy node at the next step. Throws EndOfData; the cursor then stays.
void take_step(Node& node);
/// Computes the expressions of an update and, only if all went well, assigns them.
void run_update(Node& root, const GradientRecord::Update& update);
/// Lets go of the values below `root` that only gradient rules of this tree hold on to. They are computed
/// again when asked, unless a leaf has changed since. Returns the bytes that are free now.
int64_t release_values(Node& root);
/// Writes a leaf's value.
void assign(Node& leaf, const Tensor& value) noexcept;

}  // namespace espalier
