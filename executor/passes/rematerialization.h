// Rematerialization: a graph with copies of nodes behind gaps in which their values are not read.
#pragma once
#include <limits>
#include <vector>

#include "espalier/executor/plan/memory.h"

namespace espalier {

/// The readers of each value. Readers of a view without a kernel count as readers of the value below it.
struct Readers {
  std::vector<bool> is_seen_through;
  std::vector<uint32_t> behind;                ///< the node itself, or for a view the node below it
  std::vector<std::vector<uint32_t>> readers;  ///< positions; the number of nodes stands for a result

  Readers(const Graph& graph, const MemoryPlan& plan);
  /// The last reader; the node itself if it has no reader.
  uint32_t last(uint32_t i) const { return readers[i].empty() ? i : readers[i].back(); }
};

/// For each node: the position after which readers use a copy, or `no_gap`.
using DropPoints = std::vector<uint32_t>;
constexpr uint32_t no_gap = std::numeric_limits<uint32_t>::max();

/// Inserts the copies for these gaps, each before its first reader. Moves views to their readers, since a
/// view keeps the value below it alive.
struct Rematerialized {
  Graph graph;
  std::vector<uint32_t> position;  ///< of each node of the base graph; `no_gap` for views without a reader

  Rematerialized(const Graph& base, const Readers& readers, const DropPoints& gaps);
};

}  // namespace espalier
