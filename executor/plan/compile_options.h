// How a step is compiled.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/executor/graph/graph.h"
#include "espalier/executor/plan/nan_search.h"
#include "espalier/executor/precision.h"
#include "espalier/executor/sharding/shard.h"

namespace espalier {

struct CompileOptions {
  bool inference = false;
  DeviceType device = DeviceType::cpu;    ///< that will run the plan
  std::vector<std::string> without = {};  ///< passes to leave out
  bool dump = false;                      ///< keep the graph before and after each pass
  int64_t memory_budget = 0;              ///< bytes; 0: any
  Precision precision = Precision::float32;
  /// Unless it is off, each kernel runs alone.
  NanSearch find_nan = NanSearch::off;
  /// The rows that the plan takes of each batch, if it is one of several.
  std::optional<ShardOptions> shard = {};

  /// Returns true if kernels may keep what they make of leaves alone: the plan writes none, and its memory
  /// has no limit.
  bool keeps_leaves(const Graph& graph) const {
    return inference && memory_budget == 0 &&
           std::ranges::none_of(graph.nodes, [](const GraphNode& n) { return n.op->has_side_effects(); });
  }
  /// Returns true unless the pass is left out. Without a budget nothing is recomputed; what joins kernels is
  /// left out by `find_nan`.
  bool runs(std::string_view pass) const {
    if (find_nan != NanSearch::off &&
        (pass.starts_with("fuse_") || pass == "group_updates" || pass == "join_slices"))
      return false;
    return (memory_budget > 0 || pass != "recompute") &&
           std::find(without.begin(), without.end(), pass) == without.end();
  }
};

}  // namespace espalier
