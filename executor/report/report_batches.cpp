// The report of an evaluation of waiting nodes: its batches, drawn and as a table.
#include <algorithm>

#include "espalier/core/deferred/deferred.h"
#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/executor/report/report_parts.h"

namespace espalier {

namespace report {

namespace {

using Batch = EvaluationReport::Batch;

std::string spec_text(const Batch& batch) {
  return fmt::format("{} {}", name(batch.of_one.dtype), batch.of_one.shape.str());
}
std::string reads_text(const Batch& batch) {
  std::string text;
  for (const size_t from : batch.reads) text += fmt::format("{}%{}", text.empty() ? "" : " ", from);
  return text;
}
const char* kind_of(const Batch& batch) { return batch.kernels ? "runs" : "idle"; }

/// The levels of the batches: 1 more than the highest.
int64_t levels(const EvaluationReport& report) {
  int64_t count = 0;
  for (const Batch& batch : report.batches) count = std::max(count, batch.level + 1);
  return count;
}

std::string batch_summary(const EvaluationReport& report) {
  double seconds = 0;
  int64_t bytes = 0, gathered = 0;
  for (const Batch& batch : report.batches) {
    seconds += batch.seconds;
    bytes += batch.bytes;
    gathered += batch.gathered;
  }
  std::string html = "<section id=\"summary\"><div class=\"cards\">\n";
  html += card(grouped(report.nodes_computed), "nodes");
  html += card(grouped(static_cast<int64_t>(report.batches.size())), "batches");
  html += card(grouped(levels(report)), "levels");
  html += card(grouped(report.kernels_run), "kernels");
  html += card(grouped(gathered), "inputs copied together");
  html += card_of_bytes(bytes, "results");
  html += card(time_text(seconds), "all batches");
  html += card(report.schedule_known ? "known" : "planned", "schedule");
  return html + "</div></section>\n";
}

std::string batch_drawing(const EvaluationReport& report, const std::vector<std::string>& texts) {
  DrawnGraph graph;
  for (uint32_t i = 0; i < report.batches.size(); ++i) {
    const Batch& batch = report.batches[i];
    graph.nodes.push_back(
        {i, fmt::format("forward {}", kind_of(batch)), fmt::format("{} × {}", grouped(batch.nodes), batch.op),
         batch.of_one.shape.str(),
         fmt::format(
             "%{} {}: {} nodes, each {}\nlevel {}, {} kernels, {} inputs copied together\n{}, {}\n{}\n{}", i,
             batch.op, batch.nodes, spec_text(batch), batch.level, batch.kernels, batch.gathered,
             bytes_text(batch.bytes), time_text(batch.seconds), line_of(batch.where), texts[i])});
    for (const size_t from : batch.reads) graph.edges.emplace_back(static_cast<uint32_t>(from), i);
  }
  return "<section id=\"graph\"><h2>The batches</h2>\n<p>Each box is a batch: nodes of one kind, computed as "
         "one. Values flow downwards, and a batch stands below all that it reads. Point at one for more; "
         "click "
         "it for its row." +
         remark_on_size(graph) + "</p>\n" + drawing_of(graph, "The batches as a graph") + "</section>\n";
}

std::string batch_table(const EvaluationReport& report, const std::vector<std::string>& texts) {
  double longest = 0, all = 0;
  for (const Batch& batch : report.batches) {
    longest = std::max(longest, batch.seconds);
    all += batch.seconds;
  }
  std::string html =
      "<section id=\"steps\"><h2>In the order of their computation</h2>\n<p>Times are of the thread that "
      "computed; a GPU may have computed longer. An input is copied together if its rows do not lie behind "
      "each other, or in steps.</p>\n<div class=\"tools\" hidden><input type=\"search\" id=\"filter\" "
      "placeholder=\"filter\" aria-label=\"Filter the batches\"> <label><input type=\"checkbox\" "
      "id=\"idle\"> also what needs no kernel</label> <label><input type=\"checkbox\" id=\"by-time\"> "
      "slowest "
      "first</label></div>\n<div class=\"frame\"><table id=\"step-table\"><thead><tr><th>batch</th>"
      "<th>operation</th><th class=\"number\">nodes</th><th>value of one</th><th class=\"number\">level</th>"
      "<th>reads</th><th class=\"number\">copied</th><th class=\"number\">kernels</th>"
      "<th class=\"number\">results</th><th class=\"number\">time</th><th>share</th><th>source</th></tr>"
      "</thead><tbody>\n";
  for (size_t i = 0; i < report.batches.size(); ++i) {
    const Batch& batch = report.batches[i];
    html += fmt::format(
        "<tr id=\"s{0}\" data-node=\"{0}\" data-time=\"{1:.9f}\" class=\"{2}\"><td>%{0}</td><td "
        "class=\"op\">{3}</td><td class=\"number\">{4}</td><td>{5}</td><td class=\"number\">{6}</td><td "
        "class=\"inputs\">{7}</td><td class=\"number\">{8}</td><td class=\"number\">{9}</td><td "
        "class=\"number\">{10}</td><td class=\"number\">{11}</td>",
        i, batch.seconds, kind_of(batch), escape(batch.op), grouped(batch.nodes), escape(spec_text(batch)),
        batch.level, reads_text(batch), batch.gathered, batch.kernels, bytes_text(batch.bytes),
        time_text(batch.seconds));
    html += fmt::format(
        "<td class=\"bar\"><span class=\"forward\" style=\"width:{:.1f}%\"></span>{:.1f} %</td><td "
        "class=\"source\"><span>{}</span><code>{}</code></td></tr>\n",
        longest > 0 ? 45 * batch.seconds / longest : 0, all > 0 ? 100 * batch.seconds / all : 0,
        escape(line_of(batch.where)), escape(texts[i]));
  }
  return html + "</tbody></table></div></section>\n";
}

}  // namespace

}  // namespace report

void EvaluationReport::report(const std::filesystem::path& html, std::source_location where) const {
  located(where, [&] {
    std::vector<std::source_location> places;
    for (const Batch& batch : batches) places.push_back(batch.where);
    const std::vector<std::string> texts = report::source_texts(places);
    AtomicFile file(html);
    file.write(report::page_html("Nodes that waited", {"graph", "steps"},
                                 report::batch_summary(*this) + report::batch_drawing(*this, texts) +
                                     report::batch_table(*this, texts)));
    file.commit();
  });
}

}  // namespace espalier
