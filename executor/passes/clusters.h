// Clusters of nodes that one kernel can compute: pointwise ops over one domain of elements, and folds of it.
#pragma once
#include "espalier/executor/fused/program.h"
#include "espalier/executor/graph/contraction.h"
#include "espalier/executor/graph/views.h"

namespace espalier {

constexpr int64_t longest_row = 8192;  ///< elements: a tile must hold a whole row

struct Cluster {
  std::vector<uint32_t> members;  ///< in the order of the graph
  int64_t elements = 0;           ///< of the domain
  int64_t row = 0;                ///< elements of a row; 0 if no member depends on rows
};

/// The inputs of a node in the types that kernels compute in: 16-bit reals in float32, but for conversions on
/// a CPU, where each is an instruction of its own.
std::vector<Spec> computed_specs(const Graph& graph, const GraphNode& n);

/// The role of each node inside a kernel, and its cluster.
class Clustering {
 public:
  explicit Clustering(const Graph& graph);
  /// Joins clusters as far as possible, those of one tag first, so that forward nodes which only backward
  /// needs stay with backward.
  void join();

  static constexpr uint32_t none = UINT32_MAX;
  const std::vector<Cluster>& clusters() const {
    return clusters_;
  }  ///< including those of one node; some are empty
  uint32_t cluster_of(uint32_t node) const { return cluster_[node]; }
  Instruction::Kind kind(uint32_t node) const { return kinds_[node]; }
  Extent extent(uint32_t node) const { return levels_[node]; }  ///< of the result
  int64_t period(uint32_t node) const { return periods_[node]; }
  const Views& views() const { return views_; }
  /// A measure of the work of `join`, which should grow as the graph does.
  uint64_t edges_searched() const { return contraction_.edges_searched(); }

 private:
  struct Need {       // an input that a node reads
    ValueRef source;  // the value below its views
    uint32_t input;
  };
  std::span<const Need> needs(uint32_t node) const {
    return {needs_.data() + first_need_[node], needs_.data() + first_need_[node + 1]};
  }
  Adjacency find_needs();
  void describe(uint32_t node);
  bool try_join(uint32_t first, uint32_t second);
  bool fits_levels(uint32_t first, uint32_t second, int64_t row, std::optional<uint32_t> changed) const;
  bool fits_edge(int64_t row, uint32_t node, const Need& need) const;
  bool used_only_by(uint32_t producer, uint32_t consumer) const;
  void join_tagged(bool same_tag);
  size_t inputs_of(uint32_t first, uint32_t second) const;
  bool collects_values(uint32_t first, uint32_t second) const;

  const Graph& graph_;
  std::vector<Cluster> clusters_;
  std::vector<uint32_t> cluster_;
  std::vector<Instruction::Kind> kinds_;
  std::vector<Extent> levels_;
  std::vector<int64_t> periods_;
  std::vector<Need> needs_;           // of all nodes, in their order
  std::vector<uint32_t> first_need_;  // by node, and one for the end
  Views views_;
  Contraction contraction_;         // edges: to the nodes that read a node's value, directly or through views
  std::vector<size_t> most_needs_;  // by cluster: the most different values that one member reads
};

}  // namespace espalier
