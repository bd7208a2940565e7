// What a root remembers of its gradients and updates, and the map from nodes that this and autograd need.
#pragma once
#include <vector>

#include "espalier/core/cpu/block_pool.h"
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

/// Keeps the value of a node that its holder also keeps.
class ValuePin {
 public:
  ValuePin() = default;
  explicit ValuePin(Node* node) : node_(node) {
    if (node_) node_->use_value();
  }
  ValuePin(ValuePin&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  ValuePin& operator=(ValuePin&& other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~ValuePin() {
    if (node_) node_->drop_value_use();
  }

 private:
  Node* node_ = nullptr;
};

/// The gradients of one root, by node and output. Each walk of autograd adds a run of entries, later nodes
/// first, in which they are found by bisection.
class GradientTable {
 public:
  struct Entry {
    Edge node;  // held, since the root may let go of it: disconnect() on something between
    uint64_t id;
    uint32_t output;
    Edge gradient;
    ValuePin pin;  // the gradients of trainable leaves are what was asked for: their values stay
  };
  using Run = std::vector<Entry, PoolAllocator<Entry>>;

  /// The edge that holds the gradient of an output, or null.
  const Edge* find(const Node* node, uint32_t output) const;
  bool empty() const { return runs_.empty(); }
  /// Entries by falling id.
  void add(Run run) {
    if (!run.empty()) runs_.push_back(std::move(run));
  }
  template <class F>
  void for_each(F&& f) const {
    for (const Run& run : runs_)
      for (const Entry& entry : run) f(entry.node.node(), entry.output, entry.gradient);
  }
  void clear() { runs_.clear(); }

 private:
  std::vector<Run> runs_;
};

struct Record {
  GradientTable gradients;
  bool complete = false;  ///< the gradients of all trainable leaves are there

  /// The update of one optimizer: expressions and, last, the nodes that assign them.
  struct Update {
    uint64_t optimizer;  // its number, which no later one gets: its address might be given away again
    std::vector<Edge> assignments;
  };
  std::vector<Update> updates;
};

Record& record_of(Node& root);

}  // namespace espalier
