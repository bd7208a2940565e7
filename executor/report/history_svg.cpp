// History::write_svg: a chart of a run, complete in one file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/executor/history.h"
#include "espalier/executor/report/report_parts.h"

namespace espalier {

namespace {

constexpr double chart_width = 860, panel_height = 300;
constexpr double label_left = 690,
                 letter_width = 8;  // of the legend; letters of a label are at most so wide on average
constexpr double plot_left = 78, plot_right = 640, plot_top = 34, plot_bottom = 250;
constexpr size_t most_markers = 40;  // epochs whose points are drawn
// Okabe and Ito's colours, which people with any colour vision can tell apart.
constexpr const char* curve_colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"};

struct Curve {
  std::string label;
  std::vector<double> values;  // of each epoch; those that are not finite are left out
  size_t colour = 0;
  bool dashed = false;
};

/// Round numbers that lie in an interval, about five of them.
struct Ticks {
  std::vector<double> at;
  double low, high;  // what the axis shows
  int decimals;
  bool powers;  // as powers of ten

  Ticks(double first, double last, bool whole) {
    if (!(last > first)) {
      const double around = whole ? 1 : std::max(std::abs(first) * 0.1, 1e-3);
      first -= around / 2;
      last += around / 2;
    }
    const double rough = (last - first) / 5, power = std::pow(10, std::floor(std::log10(rough)));
    double step = power * 10;
    for (const double factor : {1.0, 2.0, 5.0})
      if (power * factor >= rough) {
        step = power * factor;
        break;
      }
    if (whole) step = std::max(1.0, step);
    low = whole ? first : std::floor(first / step) * step;
    high = whole ? last : std::ceil(last / step) * step;
    for (double i = std::ceil(low / step); i * step <= high + step * 1e-6; ++i) at.push_back(i * step);
    decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
    powers = std::max(std::abs(low), std::abs(high)) >= 1e5 || decimals > 5;
  }
  std::string text(double x) const {
    if (powers) return fmt::format("{:.3g}", x);
    return fmt::format("{:.{}f}", x == 0 ? 0.0 : x, decimals);
  }
};

/// One diagram over the epochs.
class Panel {
 public:
  Panel(std::string title, std::vector<Curve> curves, size_t epochs, double top)
      : title_(std::move(title)),
        curves_(std::move(curves)),
        top_(top),
        x_(1, static_cast<double>(epochs), true),
        y_(range().first, range().second, false) {}

  std::string svg() const {
    std::string out = fmt::format(R"(<text class="title" x="{}" y="{}">{}</text>)"
                                  "\n",
                                  plot_left, top_ + plot_top - 14, report::escape(title_));
    for (const double y : y_.at)
      out += fmt::format(R"(<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>)"
                         R"(<text class="tick" text-anchor="end" x="{3}" y="{4:.1f}">{5}</text>)"
                         "\n",
                         plot_left, plot_right, y_at(y), plot_left - 8, y_at(y) + 4, y_.text(y));
    for (const double x : x_.at)
      out += fmt::format(R"(<line class="axis" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>)"
                         R"(<text class="tick" text-anchor="middle" x="{0:.1f}" y="{3}">{4}</text>)"
                         "\n",
                         x_at(x), top_ + plot_bottom, top_ + plot_bottom + 5, top_ + plot_bottom + 20,
                         x_.text(x));
    out += fmt::format(R"(<path class="axis" d="M{0} {1}V{2}H{3}"/>)"
                       R"(<text class="label" text-anchor="middle" x="{4}" y="{5}">epoch</text>)"
                       "\n",
                       plot_left, top_ + plot_top, top_ + plot_bottom, plot_right,
                       (plot_left + plot_right) / 2, top_ + plot_bottom + 38);
    for (size_t i = 0; i < curves_.size(); ++i) out += curve(curves_[i]) + legend(curves_[i], i);
    return out;
  }

 private:
  std::pair<double, double> range() const {
    double low = INFINITY, high = -INFINITY;
    for (const Curve& c : curves_)
      for (const double v : c.values)
        if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
    return low <= high ? std::pair(low, high) : std::pair(0.0, 1.0);
  }
  double x_at(double x) const {
    return plot_left + (x - x_.low) / (x_.high - x_.low) * (plot_right - plot_left);
  }
  double y_at(double y) const {
    return top_ + plot_bottom - (y - y_.low) / (y_.high - y_.low) * (plot_bottom - plot_top);
  }

  static std::string style(const Curve& c) {
    return fmt::format(R"(stroke="{}"{})", curve_colours[c.colour % std::size(curve_colours)],
                       c.dashed ? R"( stroke-dasharray="6 4")" : "");
  }
  std::string curve(const Curve& c) const {
    std::string path, points;
    bool open = false;  // whether the epoch before has a point
    for (size_t e = 0; e < c.values.size(); ++e) {
      if (!std::isfinite(c.values[e])) {
        open = false;
        continue;
      }
      const double x = x_at(static_cast<double>(e + 1)), y = y_at(c.values[e]);
      path += fmt::format("{}{:.1f} {:.1f}", open ? "L" : "M", x, y);
      open = true;
      if (c.values.size() <= most_markers)
        points += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="2.5" fill="{}"/>)", x, y,
                              curve_colours[c.colour % std::size(curve_colours)]);
    }
    if (path.empty()) return {};
    return fmt::format(R"(<path class="curve" d="{}" {}/>{})"
                       "\n",
                       path, style(c), points);
  }
  std::string legend(const Curve& c, size_t i) const {
    const double y = top_ + plot_top + 8 + 20 * static_cast<double>(i);
    return fmt::format(R"(<path class="curve" d="M{} {}h26" {}/><text class="label" x="{}" y="{}">{}</text>)"
                       "\n",
                       plot_right + 16, y, style(c), label_left, y + 4, report::escape(c.label));
  }

  std::string title_;
  std::vector<Curve> curves_;
  double top_;
  Ticks x_, y_;
};

Curve curve_of(const History& history, const std::string& figure, size_t colour, bool dashed) {
  Curve curve{figure, {}, colour, dashed};
  for (const EpochRecord& epoch : history.epochs)
    curve.values.push_back(epoch.figure(figure).value_or(std::numeric_limits<double>::quiet_NaN()));
  return curve;
}

bool has_points(const Curve& curve) {
  return std::ranges::any_of(curve.values, [](double v) { return std::isfinite(v); });
}

std::string chart_of(const History& history) {
  std::vector<Curve> losses{curve_of(history, "loss", 0, false)}, figures;
  if (Curve curve = curve_of(history, "validation_loss", 1, true); has_points(curve)) losses.push_back(curve);
  std::set<std::string> names;
  for (const EpochRecord& epoch : history.epochs)
    for (const auto* outputs : {&epoch.outputs, &epoch.validation_outputs})
      for (const auto& [name, value] : *outputs) names.insert(name);
  size_t colour = 0;
  for (const std::string& name : names) {
    if (Curve curve = curve_of(history, name, colour, false); has_points(curve)) figures.push_back(curve);
    if (Curve curve = curve_of(history, "validation_" + name, colour, true); has_points(curve))
      figures.push_back(curve);
    ++colour;
  }
  size_t letters = 0;
  for (const auto* curves : {&losses, &figures})
    for (const Curve& curve : *curves) letters = std::max(letters, curve.label.size());
  const double width = std::max(chart_width, label_left + letter_width * static_cast<double>(letters));
  const double entries = 20 * static_cast<double>(figures.size()) + plot_top + 20;
  const double height = figures.empty() ? panel_height : panel_height + std::max(panel_height, entries);
  std::string svg = fmt::format(R"(<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" font-family="sans-serif">
<style>.title{{font-size:15px;font-weight:bold}}.label{{font-size:13px}}.tick{{font-size:12px;fill:#444}}
.grid{{stroke:#ddd}}.axis{{stroke:#444;fill:none}}.curve{{fill:none;stroke-width:2}}</style>
<rect width="100%" height="100%" fill="#fff"/>
)",
                                width, height);
  const size_t epochs = std::max<size_t>(1, history.epochs.size());
  svg += Panel("Loss", losses, epochs, 0).svg();
  if (!figures.empty()) svg += Panel("Outputs", figures, epochs, panel_height).svg();
  return svg + "</svg>\n";
}

}  // namespace

void History::write_svg(const std::filesystem::path& file, std::source_location where) const {
  located(where, [&] {
    AtomicFile out(file);
    out.write(chart_of(*this));
    out.commit();
  });
}

}  // namespace espalier
