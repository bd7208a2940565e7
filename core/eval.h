// When and how nodes get their values.
//
// Eager nodes compute as they are made. Lazy nodes (downstream of a feed) compute when asked: one evaluation
// shows one step of every feed, runs each node once, in the order of writing, and leaves its version on what
// it computed.
#pragma once
#include <span>
#include <utility>

#include "espalier/core/record.h"

namespace espalier {

/// What a step has assigned to a state; null if it has not, or without a step.
inline const AssignedState* assigned_in(const FeedSnapshot* snapshot, const Node* leaf) {
  return snapshot ? snapshot->assigned_to(leaf) : nullptr;
}
/// What a node computes with in a step: of a state that the step has assigned, the value before.
const Tensor& input_in(const FeedSnapshot* snapshot, const Edge& input);

/// Runs the op of a node whose inputs have values. Throws what the kernel throws; the node is then as it was.
/// Bit i of `last` allows to write over input i, if its value ends with the handle on it. In the step
/// `snapshot`, states that it has assigned are read as they were before.
void compute(Node& node, uint32_t last = 0, const FeedSnapshot* snapshot = nullptr);
/// Computes the value if there is none; lazy nodes at the step which their feeds show.
void ensure_value(Node& node);
/// Computes these nodes at the step which `root` shows.
void evaluate_at(const std::vector<Variable>& variables, Node& root);
void evaluate_at(std::span<Node* const> targets, Node& root);
/// Computes a lazy node at the next step. Throws EndOfData; the cursor then stays.
void take_step(Node& node);
/// Computes the expressions of an update and, only if all went well, assigns them.
void run_update(Node& root, const GradientRecord::Update& update);
/// Lets go of the values below `root` that only gradient rules of this tree hold on to. They are computed
/// again when asked, unless a leaf has changed since. Returns the bytes that are free now.
int64_t release_values(Node& root);
/// Writes a leaf's value. Other threads may run plans over the leaf: these have the old value or the new one.
void assign(Node& leaf, const Tensor& value) noexcept;
/// The same for several leaves: plans have all old values or all new ones.
void assign(std::span<const std::pair<Node*, Tensor>> leaves) noexcept;
/// Whether an assignment gives a leaf its own value with few elements changed.
bool edits_leaf(const Node& assignment);
/// Assigns values to leaves, and runs edits, whose other operands have values, on those that are their first
/// inputs: in the leaf's memory, if that is nothing else's, on a CPU. On a GPU, streams of other threads may
/// still be copying the old value.
void assign(std::span<const std::pair<Node*, Tensor>> leaves, std::span<Node* const> edits);

}  // namespace espalier
