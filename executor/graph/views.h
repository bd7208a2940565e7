// What values show: chains of views, resolved to the value below them.
#pragma once
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
    const uint32_t known = source_of_[value.node];
    return known != none ? sources_[known] : ViewSource{value, Layout(graph_.spec(value).shape)};
  }
  /// The value below the views.
  ValueRef value_of(ValueRef value) const {
    const uint32_t known = source_of_[value.node];
    return known != none ? sources_[known].value : value;
  }
  /// The node below the views.
  uint32_t node_of(ValueRef value) const { return value_of(value).node; }

 private:
  const Graph& graph_;
  static constexpr uint32_t none = UINT32_MAX;
  std::vector<ViewSource> sources_;  // of views
  std::vector<uint32_t> source_of_;  // by node: where its source is; none for what is no view
};

/// The source of one value.
ViewSource resolve_views(const Graph& graph, ValueRef value);

}  // namespace espalier
