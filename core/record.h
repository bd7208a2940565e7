// What a root remembers of its gradients and updates.
#pragma once
#include <optional>
#include <vector>

#include "espalier/core/cpu/block_pool.h"
#include "espalier/core/node.h"

namespace espalier {

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

struct GradientRecord {
  GradientTable gradients;
  /// The gradients of all leaves are there that were trained at that `trainable_version()`.
  std::optional<uint64_t> complete = {};
  /// Those that pass through what stands for inference: see in_train_phase().
  GradientTable in_inference = {};

  /// The update of some parameters by one optimizer: expressions and, last, the nodes that assign them.
  struct Update {
    uint64_t optimizer;  // its number, which no later one gets: its address might be given away again
    std::vector<const Node*> parameters;  // which the table of gradients holds
    std::vector<Edge> assignments;
  };
  std::vector<Update> updates;
};

GradientRecord& record_of(Node& root);

}  // namespace espalier
