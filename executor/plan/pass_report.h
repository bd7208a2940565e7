// What the passes did to a plan.
#pragma once
#include <cstdint>
#include <string>

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

}  // namespace espalier
