// Shared by the sections of a report.
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "espalier/executor/report/profiler.h"

namespace espalier::report {

/// Text escaped for HTML, attributes included. Invalid UTF-8 becomes a replacement character.
std::string escape(std::string_view text);
/// "12.3 kB"
std::string bytes_text(int64_t bytes);
/// "12,345"
std::string grouped(int64_t number);
/// "12.3 µs"
std::string time_text(double seconds);

/// A plan, with texts that all sections need.
struct Page {
  const PlanData& plan;
  const PlanTimes* times;             ///< null if nothing was measured
  std::vector<std::string> labels;    ///< "matmul", "sum(axes=[0])"
  std::vector<std::string> sources;   ///< "digits.cpp:17"
  std::vector<std::string> texts;     ///< that line of the file, if it could be read
  std::vector<std::string> tooltips;  ///< everything about a node, in lines

  Page(const PlanData& plan, const PlanTimes* times);
  const Graph& graph() const { return plan.graph; }
  const GraphNode& node(uint32_t i) const { return plan.graph.nodes[i]; }
  uint32_t size() const { return static_cast<uint32_t>(plan.graph.nodes.size()); }
  /// Mean seconds of a node's kernel; 0 if nothing was measured.
  double time(uint32_t i) const { return times ? times->nodes[i] / static_cast<double>(times->steps) : 0; }
  double time_of_kernels() const { return times ? times->kernels / static_cast<double>(times->steps) : 0; }
  /// "forward", "backward", "update"; for values that exist before the step "leaf", "constant", "batch".
  std::string_view part(uint32_t i) const;
  /// "in place", "view", …
  std::string_view how(uint32_t i) const;
  std::string shapes(uint32_t i) const;
  std::string inputs(uint32_t i) const;
  std::string places(uint32_t i) const;
};

// The sections, each complete.
std::string summary(const Page& page);
std::string graph_drawing(const Page& page);
std::string steps_table(const Page& page);
std::string memory_drawing(const Page& page);
std::string passes_table(const Page& page);
/// Empty unless the plan is for replicas.
std::string scaling_drawing(const Page& page);

/// The style sheet and the script, as they are in report.css and report.js.
extern const char* const style;
extern const char* const script;

}  // namespace espalier::report
