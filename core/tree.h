// Walks over a tree: from nodes down to what they are made of, each node once.
#pragma once
#include <vector>

#include "espalier/core/node.h"

namespace espalier {

/// A flat map from nodes to positions in a list; nodes are only compared, never held.
class NodeMap {
 public:
  static constexpr uint32_t none = UINT32_MAX;

  NodeMap() : slots_(64) {}

  uint32_t find(const Node* node) const {
    for (size_t i = hash(node);; ++i) {
      const Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.node == node) return slot.position;
      if (!slot.node) return none;
    }
  }
  /// Sets the position of a node that is not in the map.
  void insert(const Node* node, uint32_t position) {
    if ((count_ + 1) * 2 > slots_.size()) grow();
    place({node, position});
    ++count_;
  }
  size_t size() const { return count_; }

 private:
  struct Slot {
    const Node* node = nullptr;
    uint32_t position = none;
  };
  static size_t hash(const Node* node) {
    return (reinterpret_cast<size_t>(node) >> 6) * 0x9E3779B97F4A7C15u >> 20;
  }
  void place(Slot slot) {
    for (size_t i = hash(slot.node);; ++i) {
      Slot& at = slots_[i & (slots_.size() - 1)];
      if (at.node) continue;
      at = slot;
      return;
    }
  }
  void grow() {
    std::vector<Slot> before(slots_.size() * 4);
    before.swap(slots_);
    for (const Slot& slot : before)
      if (slot.node) place(slot);
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

/// A depth-first walk: `next` gives each entered node once, and the caller enters what it goes on to.
///
///     TreeWalk walk(root);
///     while (Node* node = walk.next()) walk.enter_inputs(*node);
class TreeWalk {
 public:
  TreeWalk() = default;
  explicit TreeWalk(Node* root) : todo_{root} {}
  explicit TreeWalk(const std::vector<Variable>& roots) {
    for (const Variable& root : roots) enter(root.node());
  }

  void enter(Node* node) { todo_.push_back(node); }
  void enter_inputs(const Node& node) {
    for (const Edge& input : node.inputs) todo_.push_back(input.node());
  }
  /// The node entered last of those not given yet; null at the end.
  Node* next() {
    while (!todo_.empty()) {
      Node* node = todo_.back();
      todo_.pop_back();
      if (seen_.find(node) != NodeMap::none) continue;
      seen_.insert(node, 0);
      return node;
    }
    return nullptr;
  }

 private:
  std::vector<Node*> todo_;
  NodeMap seen_;
};

/// Sorts nodes in the order of writing, which is the same in every run of a program: inputs come first.
void sort_by_age(std::vector<Node*>& nodes);

/// All that `walk` reaches through inputs, in the order of writing.
std::vector<Node*> nodes_below(TreeWalk walk);

}  // namespace espalier
