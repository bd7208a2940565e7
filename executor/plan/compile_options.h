// How a step is compiled.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/executor/graph/graph.h"
#include "espalier/executor/plan/nan_search.h"
#include "espalier/executor/precision.h"
#include "espalier/executor/sharding/shard.h"

namespace espalier {

/// When a pass is left out that is not named in `without`. Bits.
enum PassTrait : uint8_t {
  joins_kernels = 1,  ///< by `find_nan`, for which each kernel runs alone
  needs_budget = 2,   ///< without a budget for memory
  has_no_code = 4,    ///< where a plan is written as C: it makes nodes for which there is no C code
};

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
  /// Returns true unless the pass is left out.
  bool runs(std::string_view pass, int traits = 0) const {
    if ((traits & joins_kernels) && find_nan != NanSearch::off) return false;
    if ((traits & needs_budget) && memory_budget == 0) return false;
    return std::ranges::find(without, pass) == without.end();
  }
  /// Throws Error if `without` names a pass that is none of these.
  void check_names(const std::vector<std::string>& passes) const;
};

}  // namespace espalier
