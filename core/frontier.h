// Frontier: the gradients on the way in a walk against the order of writing.
#pragma once
#include <utility>
#include <vector>

#include "espalier/core/gradient_rule.h"
#include "espalier/core/tree.h"

namespace espalier {

/// The nodes a walk is about to visit. The thread reuses its memory in the next walk.
struct Frontier {
  static constexpr uint32_t none = UINT32_MAX;
  struct Contribution {
    Variable gradient;
    uint32_t output;
    uint32_t next;
  };
  struct Slot {
    uint32_t first = none, last = none;
    uint32_t products = none;  // of these, added to the first contribution in the end
    int64_t bytes = 0;         // of the contributions behind the first one
  };
  /// What is still to be added to a gradient.
  struct Products {
    std::vector<GradientProduct> terms;
    int64_t bytes = 0;  // of their operands
    int64_t rows = 0;   // of the inner axis
  };
  std::vector<Slot> slots;
  std::vector<Products> products;
  std::vector<Contribution> contributions;
  std::vector<std::pair<uint64_t, Node*>> heap;    // latest node first
  std::vector<std::pair<uint64_t, Node*>> leaves;  // visited at the end: nothing is below them
  NodeMap mapped;                                  // slots of nodes that must not be marked

  void clear() {
    slots.clear();
    products.clear();
    contributions.clear();
    heap.clear();
    leaves.clear();
    if (mapped.size()) mapped = NodeMap();
  }
};

}  // namespace espalier
