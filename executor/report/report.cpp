#include "espalier/executor/report/report.h"

#include <algorithm>

#include "espalier/core/files/file.h"
#include "espalier/executor/plan.h"
#include "espalier/executor/report/report_parts.h"

namespace espalier {

namespace report {

namespace {

/// One bar: the parts of a step's time.
std::string time_bar(const Page& page) {
  const PlanTimes& times = *page.times;
  struct Share {
    std::string_view name, part;
    double seconds;
  };
  std::vector<Share> shares{{"forward", "forward", 0}, {"backward", "backward", 0}, {"update", "update", 0}};
  for (uint32_t i = 0; i < page.size(); ++i)
    for (Share& share : shares)
      if (share.part == page.part(i)) share.seconds += times.nodes[i];
  shares.push_back({"waiting for data", "wait", times.wait});
  shares.push_back({"copying the batch", "batch", times.load});
  double known = 0;
  for (const Share& share : shares) known += share.seconds;
  shares.push_back({"the rest", "constant", std::max(0.0, times.step - known)});
  const double total = std::max(known, times.step);
  std::string bar = "<div class=\"stack\">", legend = "<p class=\"legend\">";
  for (const Share& share : shares) {
    const double percent = total > 0 ? 100 * share.seconds / total : 0;
    bar += fmt::format("<i class=\"{}\" style=\"width:{:.2f}%\" title=\"{}\"></i>", share.part, percent,
                       share.name);
    legend += fmt::format("<span><i class=\"{}\"></i>{} {} ({:.1f} %)</span> ", share.part, share.name,
                          time_text(share.seconds / static_cast<double>(times.steps)), percent);
  }
  return bar + "</div>\n" + legend + "</p>\n";
}

/// The most expensive lines of the program.
std::string slowest_lines(const Page& page) {
  std::map<std::string, std::pair<double, uint32_t>> lines;
  for (uint32_t i = 0; i < page.size(); ++i)
    if (page.plan.memory.runs[i]) {
      auto& [seconds, node] = lines.try_emplace(page.sources[i], 0.0, i).first->second;
      seconds += page.time(i);
    }
  std::vector<std::pair<double, uint32_t>> order;
  for (const auto& [line, cost] : lines) order.push_back(cost);
  std::sort(order.rbegin(), order.rend());
  constexpr size_t shown = 8;
  order.resize(std::min(order.size(), shown));
  std::string html = "<h3>Lines of the program that take longest</h3>\n<table id=\"line-table\"><tbody>\n";
  for (const auto& [seconds, node] : order)
    html += fmt::format(
        "<tr><td class=\"number\">{}</td><td class=\"bar\"><span class=\"forward\" "
        "style=\"width:{:.1f}%\"></span>"
        "{:.1f} %</td><td class=\"source\"><span>{}</span><code>{}</code></td></tr>\n",
        time_text(seconds), order[0].first > 0 ? 55 * seconds / order[0].first : 0,
        page.time_of_kernels() > 0 ? 100 * seconds / page.time_of_kernels() : 0, escape(page.sources[node]),
        escape(page.texts[node]));
  return html + "</tbody></table>\n";
}

}  // namespace

std::string summary(const Page& page) {
  const MemoryPlan& memory = page.plan.memory;
  const Plan plan(std::shared_ptr<const PlanData>(std::shared_ptr<void>(), &page.plan));
  std::string html = "<section id=\"summary\"><div class=\"cards\">\n";
  html += card(grouped(plan.steps()), "steps (kernels)");
  html += card(grouped(page.size()), "nodes");
  html += card_of_bytes(memory.arena_bytes, "arena");
  html += card_of_bytes(memory.largest_live_bytes, "largest live set");
  if (const WorkspaceSizes sizes = workspace_sizes(memory); sizes.count > 0)
    html += card_of_bytes(sizes.largest, "largest workspace");
  html += card_of_bytes(plan.leaf_bytes(), "parameters and states");
  html += card(grouped(static_cast<int64_t>(page.plan.passes.size())), "passes");
  if (page.times) {
    const auto steps = static_cast<double>(page.times->steps);
    html += card(time_text(page.times->step / steps), "a step");
    html += card(time_text(page.time_of_kernels()), "its kernels");
    html += card(time_text(page.times->wait / steps), "waiting for data");
  }
  html += "</div>\n";
  if (!page.times)
    return html +
           "<p class=\"note\"><strong>Not profiled.</strong> Times are measured, never guessed: call "
           "<code>executor.profile()</code>, run some steps, and write the report again.</p></section>\n";
  html += fmt::format("<p class=\"note\">Times are means over {} profiled step{}.</p>\n", page.times->steps,
                      page.times->steps == 1 ? "" : "s");
  return html + time_bar(page) + slowest_lines(page) + "</section>\n";
}

}  // namespace report

std::string report_html(const PlanData& plan, const PlanTimes* times) {
  using namespace report;
  const Page page(plan, times);
  std::string title = "Plan";
  if (!plan.graph.results.empty())
    title += fmt::format(" of {}", escape(page.sources[plan.graph.results.front().node]));
  std::vector<std::string_view> sections{"graph", "steps", "memory", "passes"};
  if (plan.replication && plan.graph.device != DeviceType::cpu) sections.push_back("scaling");
  return page_html(title, sections,
                   summary(page) + graph_drawing(page) + steps_table(page) + memory_drawing(page) +
                       passes_table(page) + scaling_drawing(page));
}

void write_report(const std::filesystem::path& path, const PlanData& plan, const PlanTimes* times) {
  const std::string html = report_html(plan, times);
  AtomicFile file(path);
  file.write(html);
  file.commit();
}

}  // namespace espalier
