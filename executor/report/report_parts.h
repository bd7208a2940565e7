// Shared by the sections of a report.
#pragma once
#include <fmt/format.h>

#include <source_location>
#include <string>
#include <string_view>
#include <utility>
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

/// The lines of files, as far as these can be read.
std::vector<std::string> source_texts(const std::vector<std::source_location>& places);
/// A number with what it counts; `exact` is shown at the pointer.
std::string card(const std::string& value, std::string_view what, const std::string& exact = {});
std::string card_of_bytes(int64_t bytes, std::string_view what);
/// A page of HTML. Each section has a link at the top.
std::string page_html(const std::string& title, const std::vector<std::string_view>& sections,
                      const std::string& body);

struct DrawnNode {
  uint32_t number;
  std::string style, first_line, second_line, tooltip;
};
/// A graph in layers; values flow downwards. Edges are pairs of positions in `nodes`, from an earlier one to
/// a later one; `weak` ones are dashed.
struct DrawnGraph {
  std::vector<DrawnNode> nodes;
  std::vector<std::pair<uint32_t, uint32_t>> edges, weak;
};
/// The drawing, with buttons that zoom, and a remark if it is large.
std::string drawing_of(const DrawnGraph& graph, std::string_view label);
std::string remark_on_size(const DrawnGraph& graph);

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
