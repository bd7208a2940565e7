// Contraction: nodes of a directed acyclic graph are joined one after the other, as long as no circle closes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "espalier/executor/graph/adjacency.h"

namespace espalier {

/// Joined nodes are one unit. Units are kept in a topological order, so a path between two units leads
/// through units between them only. A test searches these from both ends, one edge at a time on each side,
/// and has the answer as soon as the two searches meet or one of them has nothing left. The order is then
/// mended by moving what that search has seen. Compare Pearce and Kelly, A dynamic topological sort algorithm
/// for directed acyclic graphs, 2006.
class Contraction {
 public:
  /// For each node, those that depend on it, which have larger numbers.
  explicit Contraction(Adjacency users);

  /// Joins the units of two nodes, unless a path from one to the other leads through further units. Returns
  /// true if they are one unit now.
  bool join(uint32_t first, uint32_t second);

  bool joined(uint32_t first, uint32_t second) const { return unit_[first] == unit_[second]; }
  std::span<const uint32_t> users(uint32_t node) const { return users_.of(node); }
  /// Edges that all searches so far have looked at.
  uint64_t edges_searched() const { return edges_searched_; }

 private:
  struct Search {
    std::vector<std::pair<int64_t, uint32_t>> heap;  // units to go on from, nearest to the goal first
    std::vector<uint32_t> seen;                      // units, without the one that the search started from
    uint32_t unit = 0;                               // whose edges are being searched
    uint32_t member = 0;                             // of the unit; none at its end
    size_t edge = 0;
  };
  enum class Found : uint8_t { nothing, path, end };

  void begin(Search& search, uint32_t unit);
  Found step(Search& search, bool forward, uint32_t from, uint32_t goal);
  enum class Side : uint8_t { before, behind };
  void move_next_to(uint32_t place, Side side, std::vector<uint32_t>& units);
  void spread(const std::vector<uint32_t>& units, uint32_t before, uint32_t after);
  void number_anew();
  void unlink(uint32_t unit);
  void merge(uint32_t into, uint32_t from);
  void sort_by_position(std::vector<uint32_t>& units) const;

  static constexpr uint32_t none = UINT32_MAX;
  Adjacency users_, inputs_;
  std::vector<uint32_t> unit_;                        // by node
  std::vector<uint32_t> next_member_;                 // by node: the next one of its unit
  std::vector<uint32_t> first_member_, last_member_;  // by unit
  // The order of the units: a list between two sentinels, with increasing positions.
  std::vector<uint32_t> before_, after_;
  std::vector<int64_t> position_;
  uint32_t first_, last_;
  std::vector<uint64_t> mark_;  // by unit: the search that has seen it
  uint64_t searches_ = 0, edges_searched_ = 0;
  Search forward_, backward_;
};

}  // namespace espalier
