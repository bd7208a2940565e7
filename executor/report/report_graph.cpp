// The graph of a report: drawn in layers, as SVG.
#include <algorithm>
#include <cmath>

#include "espalier/executor/report/report_layout.h"
#include "espalier/executor/report/report_parts.h"

namespace espalier::report {

namespace {

constexpr double character_width = 6.7;  // of the drawing's font
constexpr size_t longest_label = 24;     // in characters
constexpr size_t easily_read = 300;      // nodes

std::string shortened(const std::string& text) {
  if (text.size() <= longest_label) return text;
  size_t end = longest_label - 1;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

std::string first_line(const Page& page, uint32_t i) {
  return shortened(fmt::format("%{} {}", i, page.node(i).op->name()));
}
std::string second_line(const Page& page, uint32_t i) {
  std::string text;
  for (const Spec& spec : page.node(i).outputs)
    text += fmt::format("{}{}", text.empty() ? "" : " ", spec.shape.str());
  return shortened(text);
}

/// A smooth line: vertical at both ends, and between them along its neighbours' direction.
std::string path(const std::vector<Point>& route) {
  const auto slope = [&](size_t i) {
    if (i == 0 || i + 1 == route.size()) return 0.0;
    const Point &a = route[i - 1], &b = route[i], &c = route[i + 1];
    const double before = (b.x - a.x) / (b.y - a.y), after = (c.x - b.x) / (c.y - b.y);
    if (before * after <= 0) return 0.0;  // an extremum
    return std::abs(before) < std::abs(after) ? before : after;
  };
  std::string d = fmt::format("M{:.0f} {:.0f}", route[0].x, route[0].y);
  for (size_t i = 1; i < route.size(); ++i) {
    const Point &a = route[i - 1], &b = route[i];
    const double third = (b.y - a.y) / (route.size() == 2 ? 2 : 3);
    d += fmt::format("C{:.0f} {:.0f} {:.0f} {:.0f} {:.0f} {:.0f}", a.x + slope(i - 1) * third, a.y + third,
                     b.x - slope(i) * third, b.y - third, b.x, b.y);
  }
  return d;
}

}  // namespace

std::string graph_drawing(const Page& page) {
  // Constants appear in tooltips only; they would clutter the drawing.
  std::vector<uint32_t> shown, position(page.size());
  LayoutInput input;
  for (uint32_t i = 0; i < page.size(); ++i) {
    if (page.node(i).is_constant()) continue;
    position[i] = static_cast<uint32_t>(shown.size());
    shown.push_back(i);
    const size_t characters = std::max(first_line(page, i).size(), second_line(page, i).size());
    input.widths.push_back(std::max(64.0, character_width * static_cast<double>(characters) + 16));
  }
  struct Link {
    uint32_t from, to;
  };
  std::vector<Link> links, weak;  // edges of values, and edges of shapes or assigned leaves
  for (const uint32_t i : shown)
    for (size_t k = 0; k < page.node(i).inputs.size(); ++k) {
      const uint32_t from = page.node(i).inputs[k].node;
      if (page.node(from).is_constant()) continue;
      std::vector<Link>& list = page.node(i).op->reads_elements(k) ? links : weak;
      if (std::any_of(list.begin(), list.end(), [&](const Link& l) { return l.from == from && l.to == i; }))
        continue;
      list.push_back({from, i});
      if (&list == &links) input.edges.emplace_back(position[from], position[i]);
    }
  const Drawing drawing = lay_out(input);

  std::string html = "<section id=\"graph\"><h2>The graph</h2>\n<p>";
  html += fmt::format(
      "{} nodes{}. Values flow downwards; a dashed line passes a shape only, or names the leaf that is "
      "assigned. Point at a node to see what it is made of; click it for its step.",
      shown.size(),
      shown.size() < page.size()
          ? fmt::format(", and {} constants that are not drawn", page.size() - shown.size())
          : "");
  if (shown.size() > easily_read)
    html += " <strong>This graph is too large to be read at one glance: scroll, drag and zoom.</strong>";
  html += "</p>\n<p class=\"legend\">";
  for (const char* part : {"forward", "backward", "update", "leaf", "batch"})
    html += fmt::format("<span><i class=\"{0}\"></i>{0}</span> ", part);
  html += "<span><i class=\"forward idle\"></i>no kernel</span></p>\n";
  html +=
      "<div class=\"tools\" hidden><button data-zoom=\"0.8\">−</button><button data-zoom=\"1.25\">+</button>"
      "<button data-zoom=\"fit\">whole</button><button data-zoom=\"1\">1 : 1</button></div>\n";
  html += fmt::format(
      "<div class=\"frame\" id=\"graph-frame\"><svg id=\"graph-svg\" xmlns=\"http://www.w3.org/2000/svg\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" "
      "aria-label=\"The plan as a graph\">\n<g class=\"edges\">\n",
      drawing.width, drawing.height);
  const auto edge = [&](const Link& link, const std::vector<Point>& route, const char* kind) {
    html += fmt::format("<path class=\"{}\" data-from=\"{}\" data-to=\"{}\" d=\"{}\"/>\n", kind, link.from,
                        link.to, path(route));
  };
  for (const Link& link : weak) {
    const Point &a = drawing.nodes[position[link.from]], &b = drawing.nodes[position[link.to]];
    edge(link, {{a.x, a.y + node_height / 2}, {b.x, b.y - node_height / 2}}, "edge weak");
  }
  for (size_t e = 0; e < links.size(); ++e) edge(links[e], drawing.routes[e], "edge");
  html += "</g>\n";
  for (const uint32_t i : shown) {
    const Point& at = drawing.nodes[position[i]];
    const double width = input.widths[position[i]];
    html += fmt::format(
        "<g class=\"node {}{}\" id=\"g{}\" data-node=\"{}\"><title>{}</title>"
        "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"5\"/>",
        page.part(i), page.plan.memory.runs[i] ? " runs" : " idle", i, i, escape(page.tooltips[i]),
        at.x - width / 2, at.y - node_height / 2, width, node_height);
    html += fmt::format(
        "<text x=\"{0:.0f}\" y=\"{1:.0f}\">{2}</text><text class=\"shape\" x=\"{0:.0f}\" "
        "y=\"{3:.0f}\">{4}</text></g>\n",
        at.x, at.y - 3, escape(first_line(page, i)), at.y + 11, escape(second_line(page, i)));
  }
  return html + "</svg></div></section>\n";
}

}  // namespace espalier::report
