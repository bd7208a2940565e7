// Clusters of nodes that one kernel can compute: pointwise ops over one domain of elements, and folds of it.
#pragma once
#include "espalier/executor/fused/program.h"
#include "espalier/executor/graph/graph.h"

namespace espalier {

/// The value below a chain of views, and the layout of the outermost view over it.
struct ViewSource {
  ValueRef value;
  Layout layout;
};
ViewSource resolve_views(const Graph& graph, ValueRef value);

struct Cluster {
  std::vector<uint32_t> members;  ///< in the order of the graph
  int64_t elements = 0;           ///< of the domain
  int64_t row = 0;                ///< elements of a row; 0 if no member depends on rows
};

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

 private:
  struct Need {  // an input that a node reads
    ViewSource seen;
    size_t input;
  };
  void describe(uint32_t node);
  bool try_join(uint32_t first, uint32_t second);
  bool fits_levels(const Cluster& joined) const;
  bool fits_edge(const Cluster& in, uint32_t node, const Need& need) const;
  uint32_t no_way_back_from(uint32_t position) const;
  bool closes_a_circle(uint32_t first, uint32_t second) const;
  bool used_only_by(uint32_t producer, uint32_t consumer) const;
  void join_tagged(bool same_tag);
  size_t inputs_of(const Cluster& cluster) const;

  const Graph& graph_;
  std::vector<Cluster> clusters_;
  std::vector<uint32_t> cluster_;
  std::vector<Instruction::Kind> kinds_;
  std::vector<Extent> levels_;
  std::vector<int64_t> periods_;
  std::vector<std::vector<Need>> needs_;
  std::vector<std::vector<uint32_t>> users_;  // nodes that read a node's value, directly or through views
};

}  // namespace espalier
