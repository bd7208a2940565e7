// Adjacency: the edges of a directed graph, in one piece of memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace espalier {

/// The edges of a graph by the nodes that they begin at.
class Adjacency {
 public:
  using Edges = std::vector<std::pair<uint32_t, uint32_t>>;
  Adjacency() = default;
  /// The edges of a node keep their order.
  Adjacency(size_t nodes, const Edges& edges);

  size_t nodes() const { return first_.size() - 1; }
  std::span<const uint32_t> of(uint32_t node) const {
    return {ends_.data() + first_[node], ends_.data() + first_[node + 1]};
  }
  /// The same edges by the nodes that they end at.
  Adjacency reversed() const;

 private:
  template <class F>
  void fill(size_t nodes, size_t edges, const F& each_edge);
  std::vector<uint32_t> first_{0};  // by node: its first edge, and one for the end
  std::vector<uint32_t> ends_;
};

}  // namespace espalier
