#include "espalier/executor/graph/views.h"

namespace espalier {

namespace {

/// The source of the view at `node`, whose input has the source `below`.
ViewSource seen_through(const Graph& graph, uint32_t node, ViewSource below) {
  const GraphNode& view = graph.nodes[node];
  auto layout = view.op->view(below.layout, view.outputs[0]);
  return layout ? ViewSource{below.value, std::move(*layout)}
                : ViewSource{{node, 0}, Layout(view.outputs[0].shape)};
}

}  // namespace

Views::Views(const Graph& graph) : graph_(graph), source_of_(graph.nodes.size(), none) {
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (const GraphNode& n = graph.nodes[i]; n.op->is_view()) {
      sources_.push_back(seen_through(graph, i, of(n.inputs[0])));
      source_of_[i] = static_cast<uint32_t>(sources_.size() - 1);
    }
}

ViewSource resolve_views(const Graph& graph, ValueRef value) {
  std::vector<uint32_t> views;
  for (; graph.nodes[value.node].op->is_view(); value = graph.nodes[value.node].inputs[0])
    views.push_back(value.node);
  ViewSource seen{value, Layout(graph.spec(value).shape)};
  for (size_t i = views.size(); i-- > 0;) seen = seen_through(graph, views[i], std::move(seen));
  return seen;
}

}  // namespace espalier
