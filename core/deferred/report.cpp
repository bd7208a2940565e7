// What an evaluation of waiting nodes has done, as text.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ostream>

#include "espalier/core/deferred/schedule_cache.h"

namespace espalier {

namespace {

EvaluationReport& report_here() {
  static thread_local EvaluationReport report;
  return report;
}

}  // namespace

const EvaluationReport& last_evaluation() { return report_here(); }
void set_last_evaluation(EvaluationReport report) { report_here() = std::move(report); }

std::string EvaluationReport::str() const {
  struct Row {
    int64_t nodes = 0, batches = 0, gathered = 0, kernels = 0;
  };
  std::map<std::string, Row> rows;
  for (const Batch& batch : batches) {
    Row& row = rows[batch.op];
    row.nodes += batch.nodes;
    row.batches += 1;
    row.gathered += batch.gathered;
    row.kernels += batch.kernels;
  }
  std::vector<std::pair<std::string, Row>> sorted(rows.begin(), rows.end());
  std::ranges::stable_sort(sorted,
                           [](const auto& a, const auto& b) { return a.second.nodes > b.second.nodes; });
  std::string text =
      fmt::format("{} nodes computed by {} kernels in {} batches; the schedule was {}\n", nodes_computed,
                  kernels_run, batches.size(), schedule_known ? "known" : "planned");
  text += fmt::format("{:<24} {:>8} {:>8} {:>8} {:>8}\n", "op", "nodes", "batches", "kernels", "gathered");
  for (const auto& [op, row] : sorted)
    text += fmt::format("{:<24} {:>8} {:>8} {:>8} {:>8}\n", op, row.nodes, row.batches, row.kernels,
                        row.gathered);
  return text;
}

std::ostream& operator<<(std::ostream& out, const EvaluationReport& report) { return out << report.str(); }

}  // namespace espalier
