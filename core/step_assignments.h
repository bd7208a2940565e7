// The states that one evaluation assigns (with_assignment), in the order of the calls.
//
// If a step assigns a state again, the value of the later assignment is computed from what the calls before
// have assigned, as far as it was written after the earlier assignment; all else reads states as they were
// before the step. What lies between the states and this value is therefore computed a second time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "espalier/core/eval.h"

namespace espalier {

/// Of the positions after `first` up to `value` those that lead to `value` and depend on an assigned state,
/// in their order. `inputs(i)` are the positions that position i reads, and `assigned(input, i)` says whether
/// one of them is a state that has been assigned before position i.
template <class Inputs, class Assigned>
std::vector<uint32_t> between_assignments(uint32_t first, uint32_t value, const Inputs& inputs,
                                          const Assigned& assigned) {
  if (value <= first) return {};  // written before
  std::vector<uint8_t> changed(value - first, 0), leads(value - first, 0);
  const auto slot = [&](uint32_t i) { return i - first - 1; };
  for (uint32_t i = first + 1; i <= value; ++i)
    for (const uint32_t input : inputs(i))
      changed[slot(i)] |= input > first && input < i ? changed[slot(input)] : assigned(input, i);
  leads.back() = 1;
  std::vector<uint32_t> between;
  for (uint32_t i = value; i > first; --i) {
    if (!leads[slot(i)] || !changed[slot(i)]) continue;
    between.push_back(i);
    for (const uint32_t input : inputs(i))
      if (input > first && input < i) leads[slot(input)] = 1;
  }
  return {between.rbegin(), between.rend()};
}

class StepAssignments {
 public:
  /// Nodes by age, and the positions of those that order an assignment, of which the step may have carried
  /// out some. Throws Error if it has assigned a state by a later call, or if a value would draw random
  /// numbers a second time.
  void plan(std::span<Node* const> nodes, std::span<const uint32_t> orders, const FeedSnapshot& snapshot);

  /// Whether a node orders an assignment that is still to come.
  bool acts(const Node& node) const { return std::ranges::find(orders_, &node) != orders_.end(); }
  /// Whether this node is computed from assigned states, too.
  bool repeats(uint32_t position) const { return !repeated_.empty() && repeated_.contains(position); }
  /// Computes it so, beside its value. Its inputs have values.
  void repeat(uint32_t position, const Node& node, const FeedSnapshot& snapshot);
  /// Takes the value that a node orders to assign.
  void order(const Node& node, const FeedSnapshot& snapshot);
  /// Assigns all states, whose values before stay in the snapshot.
  void assign_all(const FeedSnapshot& snapshot);

 private:
  /// A further assignment of a state, and what is made in place of the nodes between.
  struct Again {
    const Node* order;
    std::map<const Node*, Variable> made;
  };

  bool assigned_before(const Node* state, uint64_t id) const;
  Edge repeated(const Again& again, const Edge& input, const Node& reader) const;

  std::vector<const Node*> orders_;
  std::vector<Again> again_;
  std::map<uint32_t, std::vector<uint32_t>> repeated_;  // for which of them a position is computed again
  std::map<const Node*, uint64_t> first_orders_;        // of the step, by state
  std::vector<std::pair<const Node*, Tensor>> values_;  // of the nodes that order assignments
};

}  // namespace espalier
