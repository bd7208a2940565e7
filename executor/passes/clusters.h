// Which nodes of a graph can be one kernel: pointwise ops over one domain of elements, with folds of it.
#pragma once
#include "espalier/executor/fused/program.h"
#include "espalier/executor/graph/graph.h"

namespace espalier {

/// A value as it is seen through views: what computed it, and its layout over that.
struct ViewSource {
  ValueRef value;
  Layout layout;
};
ViewSource resolve_views(const Graph& graph, ValueRef value);

struct Cluster {
  std::vector<uint32_t> members;  ///< in the order of the graph
  int64_t elements = 0;           ///< of the domain
  int64_t row = 0;                ///< 0 where nothing depends on rows
};

/// What each node of a graph may be inside a kernel, and where clusters have put it.
class Clustering {
 public:
  explicit Clustering(const Graph& graph);
  /// Joins nodes as far as that is possible. Nodes of one tag come first: what backward needs of forward
  /// stays with backward.
  void join();

  static constexpr uint32_t none = UINT32_MAX;
  const std::vector<Cluster>& clusters() const {
    return clusters_;
  }  ///< those of one node too; some are empty
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
  std::vector<std::vector<uint32_t>> users_;  // nodes that read a node's value, itself or through views
};

}  // namespace espalier
