// WaitingGraph: nodes that wait, as numbers: what a schedule is made from, and known again by.
#pragma once
#include <span>
#include <vector>

#include "espalier/core/deferred/node_kinds.h"

namespace espalier {

/// What the schedule of a graph depends on: graphs of equal structure have one.
struct WaitingStructure {
  std::vector<uint32_t> kinds;      ///< of each node; NumberTable::none for one that has been dropped
  std::vector<WaitingUse> uses;     ///< of one node after the other
  std::vector<int64_t> row_counts;  ///< of the external Variables of which rows are read
  friend bool operator==(const WaitingStructure& a, const WaitingStructure& b);
  uint64_t hash() const;
};

/// Nodes are added as they are written, and each has its number as `place`.
class WaitingGraph {
 public:
  /// The number of nodes, those included that have been dropped.
  size_t size() const { return nodes_.size(); }
  bool empty() const { return nodes_.size() == dropped_; }
  /// Reads a node, behind those that it reads.
  void add(Node& node, NodeKinds& kinds);
  /// Whether a node that waits does so here.
  bool lists(const Node& node) const { return lists(&node, node.place); }
  /// Notes that perhaps only this graph holds that node now, if it is in this place. Does not look at it.
  void note_unread(const Node* node, uint32_t place) noexcept;
  /// Drops what is noted so, and what is then held by nothing else.
  void drop_unread();
  size_t dropped() const { return dropped_; }
  /// Whether the nodes still are as they were when they were added: no leaf has been assigned, no constant
  /// written, and none of them or of their operands has waited, or been computed, elsewhere.
  bool is_current() const;
  /// Nodes that have not been dropped, in the order of writing.
  std::vector<Edge> nodes() const;
  void clear();
  /// The node with that op that reads `leaf` alone and was noted by `note_part`; null if none waits here.
  Node* part_of(const Node& leaf, const Op& op) const;
  /// Notes a node that waits here, for `part_of`.
  void note_part(const Node& part);

  Node& node(uint32_t i) const { return *nodes_[i].node(); }
  /// Lets go of a node.
  Edge take(uint32_t i) { return std::move(nodes_[i]); }
  uint32_t kind(uint32_t i) const { return structure_.kinds[i]; }
  bool is_dropped(uint32_t i) const { return kind(i) == NumberTable::none; }
  /// What a node reads; nothing if it has been dropped.
  std::span<const WaitingUse> uses(uint32_t i) const {
    if (is_dropped(i)) return {};
    return {structure_.uses.data() + first_use_[i], structure_.uses.data() + first_use_[i + 1]};
  }
  const Variable& external(uint32_t i) const { return externals_[i]; }
  const WaitingStructure& structure() const { return structure_; }

 private:
  struct Scalar {
    DType dtype;
    uint64_t bits;
    uint32_t external;
  };
  WaitingUse use_of(const Edge& edge);
  uint32_t number_of_external(const Edge& edge);
  uint32_t number_of_scalar(const Edge& edge, uint64_t bits);
  void make_room();

  std::vector<Edge> nodes_;
  std::vector<uint32_t> first_use_{0};
  WaitingStructure structure_;
  std::vector<Variable> externals_;  // with their values
  NumberTable by_edge_, by_bits_;    // externals and scalars
  std::vector<Scalar> scalars_;
  std::vector<std::pair<Edge, uint64_t>> constants_;  // of which the bits were read
  std::vector<uint32_t> unread_;
  std::vector<uint32_t> parts_;  // of leaves
  bool lists(const Node* node, uint32_t place) const {
    return place < nodes_.size() && nodes_[place].node() == node;
  }

  size_t dropped_ = 0;
  bool reads_elsewhere_ = false;                   // operands that wait, but not here
  uint64_t assignments_ = 0, computed_apart_ = 0;  // counts when the first node was added
};

/// What a node's value is made of: not what stands for it in plans of inference.
std::span<const Edge> operands_of(const Node& node);

/// Counts computations of nodes that waited in a graph, apart from it.
std::atomic<uint64_t>& computations_apart();

}  // namespace espalier
