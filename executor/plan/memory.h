// Where a plan keeps every value, fixed before the first step.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "espalier/executor/graph/graph.h"

namespace espalier {

/// A buffer of the arena: it is in use from step `first` to step `last`, both included.
struct ArenaBuffer {
  int64_t bytes = 0;
  int64_t first = 0;
  int64_t last = 0;
  int64_t offset = -1;
};

/// Sets the offsets so that no two buffers that are in use together overlap: largest first, each into the
/// smallest gap that holds it. Returns the size of the arena.
int64_t place_best_fit(std::vector<ArenaBuffer>& buffers);
/// The most bytes in use at one step: no arena can be smaller.
int64_t largest_live_set(const std::vector<ArenaBuffer>& buffers);

/// Where one output of one node lies.
struct Place {
  enum class In { nowhere, arena, leaf, constant } in = In::nowhere;
  uint32_t index = 0;  ///< the arena buffer, or the node that is the leaf or the constant
  Layout layout;       ///< relative to the start of that
};

/// The gradients of parameters side by side, each at a multiple of 64 bytes, oldest parameter first: as the
/// parameters lie in an executor's memory, and the states of one kind.
struct BucketPlan {
  struct Member {
    Variable parameter;  ///< undefined: the loss
    int64_t offset;      ///< in the buffer, in bytes
    int64_t bytes;
    bool copied;  ///< the gradient is made elsewhere: it is a view, a leaf, or read by another node later
  };
  uint32_t node;        ///< the gradients are complete when it has run, and not read before
  uint32_t buffer = 0;  ///< of the arena
  int64_t bytes = 0;
  std::vector<Member> members = {};
  bool scattered = false;  ///< each sum goes to the replica that owns it alone
};

struct MemoryPlan {
  std::vector<SmallVector<Place, 1>> places;  ///< for each node, for each output
  std::vector<ArenaBuffer> buffers;
  std::vector<bool> runs;  ///< whether the node needs a kernel: views, leaves and assignments in place do not
  std::vector<bool> in_place;  ///< whether the node writes over one of its inputs
  /// For each node the buffer that its kernel has as a workspace, while it runs.
  std::vector<std::optional<uint32_t>> workspaces;
  std::vector<BucketPlan> buckets;
  uint32_t gradient_wait = 0;  ///< the node that waits for the sums over all replicas, where a plan has such
  int64_t arena_bytes = 0;
  int64_t largest_live_bytes = 0;
  int64_t all_bytes = 0;  ///< what the buffers would need side by side
};

/// The last node whose kernel may look at values, or meet other ranks, and throw: leaves are written in place
/// behind it only. 0 if there is none.
uint32_t last_to_refuse(const Graph& graph);

/// The workspaces of a plan: how many kernels have one, and the largest, in bytes.
struct WorkspaceSizes {
  int64_t count = 0, largest = 0;
};
WorkspaceSizes workspace_sizes(const MemoryPlan& plan);

/// What a plan of memory may do, and has to have room for.
struct MemoryRules {
  bool in_place = true;    ///< outputs may be written over inputs and leaves
  bool workspaces = true;  ///< room for the workspaces of this library's kernels
  /// Outputs may be written over inputs of another type.
  bool over_other_types = true;
};

/// The same without offsets: what lives when, and in whose buffer.
MemoryPlan plan_lifetimes(const Graph& graph, const MemoryRules& rules);
/// Lifetimes, views, in place, best fit. Throws OutOfMemory if the arena needs more bytes than the budget; 0:
/// any.
MemoryPlan plan_memory(const Graph& graph, const MemoryRules& rules, int64_t budget = 0);
inline MemoryPlan plan_lifetimes(const Graph& graph, bool in_place) {
  return plan_lifetimes(graph, MemoryRules{.in_place = in_place});
}
inline MemoryPlan plan_memory(const Graph& graph, bool in_place, int64_t budget = 0) {
  return plan_memory(graph, MemoryRules{.in_place = in_place}, budget);
}
/// Throws Error if two buffers overlap while both are in use, workspaces included, or one lies beyond the
/// arena.
void verify(const MemoryPlan& plan);
inline MemoryPlan verified(MemoryPlan plan) {
  verify(plan);
  return plan;
}

}  // namespace espalier
