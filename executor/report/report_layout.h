// Layered drawing of a graph: nodes in layers from top to bottom, with few crossings of edges.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace espalier::report {

struct Point {
  double x = 0, y = 0;
};

struct LayoutInput {
  std::vector<double> widths;  ///< of each node
  /// From a node to a later node.
  std::vector<std::pair<uint32_t, uint32_t>> edges;
};

struct Drawing {
  double width = 0, height = 0;
  std::vector<Point> nodes;  ///< their centres
  std::vector<std::vector<Point>>
      routes;  ///< of each edge, from the lower side of its start to the upper side of its end
  int64_t crossings = 0;
};

constexpr double node_height = 34, layer_gap = 30, node_gap = 14;

/// The method of Sugiyama, Tagawa and Toda (1981): nodes get layers, long edges get a point in each layer
/// between, layers are ordered by the barycentres of neighbours, and places are settled by least squares.
Drawing lay_out(const LayoutInput& graph);

}  // namespace espalier::report
