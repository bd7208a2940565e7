// Copies of nodes behind gaps in which they are not read: the graph that recomputing leads to.
#pragma once
#include <limits>
#include <vector>

#include "espalier/executor/plan/memory.h"

namespace espalier {

/// Who reads each value and lies in it. Views that are no copies stand for what they show.
struct Readers {
  std::vector<bool> is_seen_through;
  std::vector<uint32_t> behind;                ///< the node whose buffer this one's output 0 lies in
  std::vector<std::vector<uint32_t>> readers;  ///< by position; the number of nodes for a result

  Readers(const Graph& graph, const MemoryPlan& plan);
  /// The node itself, if it has no reader.
  uint32_t last(uint32_t i) const { return readers[i].empty() ? i : readers[i].back(); }
};

/// For each node: the position behind which its readers get a copy, or `no_gap`.
using DropPoints = std::vector<uint32_t>;
constexpr uint32_t no_gap = std::numeric_limits<uint32_t>::max();

/// The graph with the copies that these gaps make necessary, each before its first reader. Views go to their
/// readers, for they would keep what they show alive.
struct Rematerialized {
  Graph graph;
  std::vector<uint32_t> position;  ///< of each node of the base; `no_gap` for views without a reader

  Rematerialized(const Graph& base, const Readers& readers, const DropPoints& gaps);
};

}  // namespace espalier
