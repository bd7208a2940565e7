// What values show: chains of views, resolved to the value below them.
#pragma once
#include <optional>
#include <vector>

#include "espalier/executor/graph/graph.h"

namespace espalier {

/// The value below a chain of views, and the layout of the outermost view over it.
struct ViewSource {
  ValueRef value;
  Layout layout;
};

/// The sources of all values of a graph, each view resolved once. Nodes that are no views may change; views
/// must not.
class Views {
 public:
  explicit Views(const Graph& graph);
  ViewSource of(ValueRef value) const {
    const auto& known = sources_[value.node];
    return known ? *known : ViewSource{value, Layout(graph_.spec(value).shape)};
  }
  /// The node below the views.
  uint32_t node_of(ValueRef value) const {
    const auto& known = sources_[value.node];
    return known ? known->value.node : value.node;
  }

 private:
  const Graph& graph_;
  std::vector<std::optional<ViewSource>> sources_;  // of views
};

/// The source of one value.
ViewSource resolve_views(const Graph& graph, ValueRef value);

}  // namespace espalier
