// The steps of a report, as a table.
#include <algorithm>

#include "espalier/executor/report/report_parts.h"

namespace espalier::report {

std::string steps_table(const Page& page) {
  double largest = 0;
  for (uint32_t i = 0; i < page.size(); ++i) largest = std::max(largest, page.time(i));
  const double all = page.time_of_kernels();

  std::string html = "<section id=\"steps\"><h2>The steps</h2>\n<p>";
  html +=
      "A place <code>@8192+256</code> is an offset and a size in the arena, in bytes; <code>%3</code> is the "
      "memory of "
      "leaf 3. ";
  html += page.times ? fmt::format("Times are means over {} steps; shares are of all kernels together.",
                                   page.times->steps)
                     : std::string("There are no times: this plan has not been profiled.");
  html +=
      "</p>\n<div class=\"tools\" hidden><input type=\"search\" id=\"filter\" placeholder=\"filter\" "
      "aria-label=\"Filter "
      "the steps\"> <label><input type=\"checkbox\" id=\"idle\"> also what needs no kernel</label>";
  if (page.times) html += " <label><input type=\"checkbox\" id=\"by-time\"> slowest first</label>";
  html +=
      "</div>\n<div class=\"frame\"><table "
      "id=\"step-table\"><thead><tr><th>step</th><th>operation</th><th>reads</th>"
      "<th>value</th><th>place</th><th></th>";
  if (page.times) html += "<th class=\"number\">time</th><th>share</th>";
  html += "<th>source</th></tr></thead><tbody>\n";
  for (uint32_t i = 0; i < page.size(); ++i) {
    const bool runs = page.plan.memory.runs[i];
    html += fmt::format(
        "<tr id=\"s{0}\" data-node=\"{0}\" data-time=\"{1:.9f}\" class=\"{2}\"><td><i class=\"{3}\" "
        "title=\"{3}\"></i>%{0}</td>"
        "<td class=\"op\" title=\"{4}\">{4}</td><td class=\"inputs\">{5}</td><td>{6}</td><td "
        "class=\"place\">{7}</td><td>{8}</td>",
        i, page.time(i), runs ? "runs" : "idle", page.part(i), escape(page.labels[i]), page.inputs(i),
        escape(page.shapes(i)), page.places(i), page.how(i));
    if (page.times && runs)
      html += fmt::format(
          "<td class=\"number\">{}</td><td class=\"bar\"><span class=\"{}\" "
          "style=\"width:{:.1f}%\"></span>{:.1f} %</td>",
          time_text(page.time(i)), page.part(i), largest > 0 ? 45 * page.time(i) / largest : 0,
          all > 0 ? 100 * page.time(i) / all : 0);
    else if (page.times)
      html += "<td></td><td></td>";
    html += fmt::format("<td class=\"source\"><span>{}</span>", escape(page.sources[i]));
    if (!page.texts[i].empty()) html += fmt::format("<code>{}</code>", escape(page.texts[i]));
    html += "</td></tr>\n";
  }
  return html + "</tbody></table></div></section>\n";
}

}  // namespace espalier::report
