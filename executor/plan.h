// Plan: what get_executor made of a tree, to read.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

namespace espalier {

/// What one pass did.
struct PassReport {
  std::string name = {};
  bool changed = false;
  int64_t nodes_before = 0;
  int64_t nodes_after = 0;
  double seconds = 0;
  std::string before = {}, after = {};  ///< the graph as text, if `ExecutorOptions::dump` asked for it
};

struct PlanData;

class Plan {
 public:
  explicit Plan(std::shared_ptr<const PlanData> data) : data_(std::move(data)) {}

  /// Kernels called in a step.
  int64_t steps() const;
  /// The arena that holds all intermediate values and the batch.
  int64_t arena_bytes() const;
  /// The most bytes in use at once: no arena can be smaller.
  int64_t largest_live_bytes() const;
  /// Parameters and optimizer states.
  int64_t leaf_bytes() const;
  const std::vector<PassReport>& passes() const;

  /// Passes, steps with their buffers and source lines, memory.
  std::string str() const;
  /// The same graph for Graphviz.
  std::string dot() const;

 private:
  std::shared_ptr<const PlanData> data_;
};

std::ostream& operator<<(std::ostream& out, const Plan& plan);

}  // namespace espalier
