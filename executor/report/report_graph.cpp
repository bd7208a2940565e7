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

std::string remark_on_size(const DrawnGraph& graph) {
  if (graph.nodes.size() <= easily_read) return {};
  return " <strong>This graph is too large to be read at one glance: scroll, drag and zoom.</strong>";
}

std::string drawing_of(const DrawnGraph& graph, std::string_view label) {
  LayoutInput input{.widths = {}, .edges = graph.edges};
  for (const DrawnNode& node : graph.nodes) {
    const size_t characters = std::max(node.first_line.size(), node.second_line.size());
    input.widths.push_back(std::max(64.0, character_width * static_cast<double>(characters) + 16));
  }
  const Drawing drawing = lay_out(input);
  std::string html =
      "<div class=\"tools\" hidden><button data-zoom=\"0.8\">−</button><button data-zoom=\"1.25\">+</button>"
      "<button data-zoom=\"fit\">whole</button><button data-zoom=\"1\">1 : 1</button></div>\n";
  html += fmt::format(
      "<div class=\"frame\" id=\"graph-frame\"><svg id=\"graph-svg\" xmlns=\"http://www.w3.org/2000/svg\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\" "
      "aria-label=\"{2}\">\n<g class=\"edges\">\n",
      drawing.width, drawing.height, label);
  const auto edge = [&](const std::pair<uint32_t, uint32_t>& link, const std::vector<Point>& route,
                        const char* kind) {
    html += fmt::format("<path class=\"{}\" data-from=\"{}\" data-to=\"{}\" d=\"{}\"/>\n", kind,
                        graph.nodes[link.first].number, graph.nodes[link.second].number, path(route));
  };
  for (const auto& link : graph.weak) {
    const Point &a = drawing.nodes[link.first], &b = drawing.nodes[link.second];
    edge(link, {{a.x, a.y + node_height / 2}, {b.x, b.y - node_height / 2}}, "edge weak");
  }
  for (size_t e = 0; e < graph.edges.size(); ++e) edge(graph.edges[e], drawing.routes[e], "edge");
  html += "</g>\n";
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const DrawnNode& node = graph.nodes[i];
    const Point& at = drawing.nodes[i];
    html += fmt::format(
        "<g class=\"node {}\" id=\"g{}\" data-node=\"{}\"><title>{}</title>"
        "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"5\"/>",
        node.style, node.number, node.number, escape(node.tooltip), at.x - input.widths[i] / 2,
        at.y - node_height / 2, input.widths[i], node_height);
    html += fmt::format(
        "<text x=\"{0:.0f}\" y=\"{1:.0f}\">{2}</text><text class=\"shape\" x=\"{0:.0f}\" "
        "y=\"{3:.0f}\">{4}</text></g>\n",
        at.x, at.y - 3, escape(node.first_line), at.y + 11, escape(node.second_line));
  }
  return html + "</svg></div>";
}

std::string graph_drawing(const Page& page) {
  // Constants appear in tooltips only; they would clutter the drawing.
  DrawnGraph graph;
  std::vector<uint32_t> position(page.size());
  for (uint32_t i = 0; i < page.size(); ++i) {
    if (page.node(i).is_constant()) continue;
    position[i] = static_cast<uint32_t>(graph.nodes.size());
    graph.nodes.push_back({i, fmt::format("{} {}", page.part(i), page.plan.memory.runs[i] ? "runs" : "idle"),
                           first_line(page, i), second_line(page, i), page.tooltips[i]});
    for (size_t k = 0; k < page.node(i).inputs.size(); ++k) {
      const uint32_t from = page.node(i).inputs[k].node;
      if (page.node(from).is_constant()) continue;
      auto& list = page.node(i).op->reads_elements(k) ? graph.edges : graph.weak;  // weak: a shape, or a leaf
      const std::pair link(position[from], position[i]);
      if (std::ranges::find(list, link) == list.end()) list.push_back(link);
    }
  }
  std::string html = "<section id=\"graph\"><h2>The graph</h2>\n<p>";
  html += fmt::format(
      "{} nodes{}. Values flow downwards; a dashed line passes a shape only, or names the leaf that is "
      "assigned. Point at a node to see what it is made of; click it for its step.",
      graph.nodes.size(),
      graph.nodes.size() < page.size()
          ? fmt::format(", and {} constants that are not drawn", page.size() - graph.nodes.size())
          : "");
  html += remark_on_size(graph);
  html += "</p>\n<p class=\"legend\">";
  for (const char* part : {"forward", "backward", "update", "leaf", "batch"})
    html += fmt::format("<span><i class=\"{0}\"></i>{0}</span> ", part);
  html += "<span><i class=\"forward idle\"></i>no kernel</span></p>\n";
  return html + drawing_of(graph, "The plan as a graph") + "</section>\n";
}

}  // namespace espalier::report
