// The scaling section of a report: predicted costs of a plan's steps on other machines.
#include <algorithm>
#include <array>
#include <cmath>

#include "espalier/executor/cost/cost_model.h"
#include "espalier/executor/report/report_parts.h"

namespace espalier::report {

namespace {

constexpr double margin_top = 30, height = 210, margin_bottom = 40, margin_left = 62, panel = 296, gap = 78;
constexpr int64_t most = 4096;

/// The line of one machine, in the colour of a part of the step.
struct Series {
  std::string name;
  const char* color;
  std::vector<Prediction> points;
};

double exposed_share(const Prediction& p) { return p.step > 0 ? p.exposed / p.step : 0; }
std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

/// The largest 1, 2 or 5 times a power of ten not above a value, and the next one.
double round_down(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {5.0, 2.0})
    if (step * power <= value) return step * power;
  return power;
}
double next_round(double round) {
  const double digit = round / std::pow(10, std::floor(std::log10(round) + 1e-9));
  return digit > 4 ? 2 * round : digit > 1.5 ? 2.5 * round : 2 * round;
}

/// Maps values to heights; has the labels of the axis.
struct Axis {
  double low, high;
  bool logarithmic;
  std::vector<double> ticks;
  double y(double value) const {
    const double share =
        logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return margin_top + height * (1 - std::clamp(share, 0.0, 1.0));
  }
};

Axis share_axis() { return {0, 1, false, {0, 0.25, 0.5, 0.75, 1}}; }

Axis time_axis(const std::vector<Series>& all) {
  double least = INFINITY, largest = 0;
  for (const Series& series : all)
    for (const Prediction& p : series.points) {
      least = std::min(least, p.step);
      largest = std::max(largest, p.step);
    }
  if (!(least > 0 && std::isfinite(largest))) return {1e-6, 1, true, {1e-6, 1}};
  Axis axis{round_down(least), 0, true, {}};
  for (double tick = axis.low; axis.ticks.empty() || axis.ticks.back() < largest * (1 - 1e-9);
       tick = next_round(tick))
    axis.ticks.push_back(tick);
  if (axis.ticks.size() < 2) axis.ticks.push_back(next_round(axis.low));
  axis.high = axis.ticks.back();
  // Only as many as there is space for.
  constexpr size_t room = 9;
  const size_t every = (axis.ticks.size() + room - 1) / room;
  std::vector<double> shown;
  for (size_t i = 0; i < axis.ticks.size(); i += every) shown.push_back(axis.ticks[i]);
  axis.ticks = shown;
  return axis;
}

std::string panel_of(const std::vector<Series>& all, size_t column, std::string_view title, const Axis& axis,
                     double (*value)(const Prediction&), std::string (*label)(double)) {
  const double x0 = margin_left + static_cast<double>(column) * (panel + gap);
  const auto x = [&](int64_t replicas) {
    return x0 + panel * std::log2(static_cast<double>(replicas)) / std::log2(static_cast<double>(most));
  };
  std::string svg = fmt::format("<text class=\"title\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x0 + panel / 2,
                                margin_top - 12, title);
  for (const double tick : axis.ticks) {
    svg += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", x0,
                       x0 + panel, axis.y(tick), axis.y(tick));
    svg += fmt::format("<text class=\"axis\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                       x0 - 6, axis.y(tick) + 4, label(tick));
  }
  for (int64_t replicas = 1; replicas <= most; replicas *= 8)
    svg += fmt::format("<text class=\"axis\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                       x(replicas), margin_top + height + 16, grouped(replicas));
  svg +=
      fmt::format("<text class=\"axis\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">replicas</text>\n",
                  x0 + panel / 2, margin_top + height + 32);
  svg +=
      fmt::format("<rect class=\"bounds\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n",
                  x0, margin_top, panel, height);
  for (const Series& series : all) {
    std::string d;
    for (const Prediction& p : series.points)
      d += fmt::format("{}{:.2f} {:.2f}", d.empty() ? "M" : "L", x(p.replicas), axis.y(value(p)));
    svg += fmt::format("<path class=\"line {}\" d=\"{}\"/>\n", series.color, d);
    for (const Prediction& p : series.points)
      svg += fmt::format(
          "<circle class=\"point {}\" data-replicas=\"{}\" data-value=\"{:.6g}\" cx=\"{:.2f}\" cy=\"{:.2f}\" "
          "r=\"2.6\"><title>{}\n{} replicas of {} rows\na step {}, of that exposed {} ({})\n{} rows/s, "
          "efficiency "
          "{}</title></circle>\n",
          series.color, p.replicas, value(p), x(p.replicas), axis.y(value(p)), escape(series.name),
          grouped(p.replicas), p.rows, time_text(p.step), time_text(p.exposed), percent(exposed_share(p)),
          grouped(std::llround(p.samples)), percent(p.efficiency));
  }
  return svg;
}

std::string chart(const char* id, const char* title, const std::vector<Series>& all) {
  const auto as_percent = [](double share) { return fmt::format("{:.0f} %", 100 * share); };
  std::string svg = fmt::format(
      "<figure><figcaption>{}</figcaption><svg class=\"scaling\" id=\"{}\" "
      "xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n",
      title, id, margin_left + 3 * panel + 2 * gap + 22, margin_top + height + margin_bottom, title);
  svg += panel_of(
      all, 0, "a step", time_axis(all), [](const Prediction& p) { return p.step; }, time_text);
  svg += panel_of(all, 1, "of that exposed communication", share_axis(), exposed_share, as_percent);
  svg += panel_of(
      all, 2, "efficiency", share_axis(), [](const Prediction& p) { return p.efficiency; }, as_percent);
  svg += "</svg><p class=\"legend\">";
  for (const Series& series : all)
    svg += fmt::format("<span><i class=\"{}\"></i>{}</span> ", series.color, escape(series.name));
  return svg + "</p></figure>\n";
}

std::string buckets_table(const Page& page, const std::vector<BucketPlan>& buckets) {
  std::string html =
      "<table id=\"bucket-table\"><thead><tr><th>bucket</th><th class=\"number\">bytes</th><th>complete "
      "after</th><th>source</th></tr></thead><tbody>\n";
  for (size_t k = 0; k < buckets.size(); ++k) {
    const BucketPlan& bucket = buckets[k];
    html += fmt::format(
        "<tr data-node=\"{0}\"><td>{1}</td><td class=\"number\">{2}</td><td>%{0} {3}</td><td "
        "class=\"source\"><span>{4}</span></td></tr>\n",
        bucket.node, k, grouped(bucket.bytes), escape(page.node(bucket.node).op->name()),
        escape(page.sources[bucket.node]));
  }
  return html + "</tbody></table>\n";
}

std::string machines_table(const Page& page, const std::vector<CostInputs>& machines,
                           const std::vector<const char*>& colors) {
  std::string html =
      "<div class=\"frame\"><table id=\"machine-table\"><thead><tr><th>machine</th><th class=\"number\">a "
      "step</th><th class=\"number\">its kernels</th><th class=\"number\">all-reduce</th><th "
      "class=\"number\">of that exposed</th><th class=\"number\">memory of a device</th><th "
      "class=\"number\">rows/s</th><th class=\"number\">efficiency</th></tr></thead><tbody>\n";
  for (size_t i = 0; i < machines.size(); ++i) {
    const Prediction p = internal::predict(page.plan, machines[i]);
    html += fmt::format("<tr><td><i class=\"{}\"></i>{}, {}</td>", colors[i],
                        escape(machines[i].hardware.name), escape(machines[i].network.name));
    for (const std::string& cell : {time_text(p.step), time_text(p.compute), time_text(p.communication),
                                    time_text(p.exposed), bytes_text(p.memory) + (p.fits ? "" : ": too much"),
                                    grouped(std::llround(p.samples)), percent(p.efficiency)})
      html += fmt::format("<td class=\"number\">{}</td>", cell);
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

constexpr std::array assumptions{
    "A kernel takes the longer of its FLOPs over the device's rate and its bytes over the memory's "
    "bandwidth, "
    "and the time of a launch. Rates and bandwidths are those of data sheets, times the part that is usually "
    "reached (65 % for products, 80 % for memory, 80 % for links): no kernel was measured.",
    "Products count 2·m·n·k FLOPs, all else one for each element that is computed, or read and written. "
    "Caches are left out, and so is everything but kernels: reading data, copying the batch, the "
    "host.",
    "Gradients go bucket by bucket, one after the other, each from the end of the node that completes it, "
    "fully beside the rest of backward. All that is on its way when the first update needs it is exposed.",
    "An all-reduce is a ring or two trees at each level of the network, whichever is faster there. Nothing "
    "else uses the network, and no replica is later than another.",
    "Strong scaling: FLOPs and bytes that depend on the batch shrink with a replica's rows; parameters, "
    "their gradients and the launches of kernels do not. Kernels reach as much of a device with few rows as "
    "with "
    "many."};

}  // namespace

std::string scaling_drawing(const Page& page) {
  if (!page.plan.replication || page.plan.graph.device == DeviceType::cpu) return {};
  const Replication& replication = *page.plan.replication;
  const std::vector<BucketPlan>& buckets = page.plan.memory.buckets;
  const std::vector<CostInputs> machines = presets::all();
  const std::vector<const char*> colors{"forward", "update", "backward", "batch"};
  std::vector<Series> weak, strong;
  for (size_t i = 0; i < machines.size(); ++i) {
    const std::string name = fmt::format("{}, {}", machines[i].hardware.name, machines[i].network.name);
    weak.push_back({name, colors[i], internal::scaling(page.plan, machines[i], Scaling::weak, most)});
    strong.push_back({name, colors[i], internal::scaling(page.plan, machines[i], Scaling::strong, most)});
  }
  int64_t bytes = 0;
  for (const BucketPlan& bucket : buckets) bytes += bucket.bytes;

  std::string html = "<section id=\"scaling\"><h2>The scale, on paper</h2>\n";
  html += fmt::format(
      "<p>{} replicas share {} rows. Their gradients, {}, are added up in {} bucket{}, and wait for each "
      "other at "
      "{}. <strong>Nothing of what follows is measured</strong>: it is computed from the plan and from data "
      "sheets.</p>\n",
      grouped(replication.replicas), grouped(replication.batch_rows), bytes_text(bytes), buckets.size(),
      buckets.size() == 1 ? "" : "s", fmt::format("%{}", page.plan.memory.gradient_wait));
  html += buckets_table(page, buckets);
  html += fmt::format("<h3>A step on {} replicas</h3>\n", grouped(replication.replicas));
  html += machines_table(page, machines, colors);
  html += chart("scaling-weak", "Weak scaling: each replica has as many rows as in this plan", weak);
  html +=
      chart("scaling-strong",
            fmt::format("Strong scaling: all replicas together have {} rows", grouped(replication.batch_rows))
                .c_str(),
            strong);
  html += "<h3>What this assumes</h3>\n<ul>\n";
  for (const char* assumption : assumptions) html += fmt::format("<li>{}</li>\n", assumption);
  return html + "</ul></section>\n";
}

}  // namespace espalier::report
