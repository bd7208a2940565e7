// Copies of nodes behind gaps in which nobody reads them: what recomputing makes of a graph.
#pragma once
#include <limits>
#include <vector>

#include "espalier/executor/memory.h"

namespace espalier {

/// Who reads each value and lies in it. Views that are no copies stand for what they show.
struct Uses {
  std::vector<bool> is_seen_through;
  std::vector<uint32_t> behind;                ///< the node whose buffer this one's output 0 lies in
  std::vector<std::vector<uint32_t>> readers;  ///< by position; the number of nodes for a result

  Uses(const Graph& graph, const MemoryPlan& plan);
  /// The node itself, if nobody reads it.
  uint32_t last(uint32_t i) const { return readers[i].empty() ? i : readers[i].back(); }
};

/// For each node: the position behind which its readers get a copy, or `no_gap`.
using Gaps = std::vector<uint32_t>;
constexpr uint32_t no_gap = std::numeric_limits<uint32_t>::max();

/// The graph with the copies that these gaps make necessary, each before its first reader. Views go to their
/// readers, for they would keep what they show alive.
class Rebuilt {
 public:
  Graph graph;
  std::vector<uint32_t> position;  ///< of each node of the base

  Rebuilt(const Graph& base, const Uses& uses, const Gaps& gaps);

 private:
  /// Appends node i, reading what its inputs are at the time `when`.
  uint32_t emit(uint32_t i, uint32_t when);
  ValueRef original(ValueRef v);
  /// The value as who reads it at that time finds it.
  ValueRef at(ValueRef v, uint32_t when);

  const Graph& base_;
  const Uses& uses_;
  const Gaps& gaps_;
  std::vector<uint32_t> copies_;
};

}  // namespace espalier
