// GraphRewriter: passes change graphs through it; it renumbers nodes in one place.
#pragma once
#include <deque>
#include <unordered_map>

#include "espalier/executor/graph/graph.h"

namespace espalier {

/// Until `finish`, nodes of the graph keep their numbers, and new nodes get the numbers after them; inputs
/// and results may refer to both. Each call takes constant time, and `finish` is linear in nodes.
class GraphRewriter {
 public:
  explicit GraphRewriter(Graph& graph);

  /// The node with a number, old or new. References stay valid until `finish`.
  GraphNode& node(uint32_t number) { return number < old_ ? graph_.nodes[number] : added_[number - old_]; }
  const Spec& spec(ValueRef v) { return node(v.node).outputs[v.output]; }

  /// Adds a node at a place in the order, and returns its number. A random node without a stream gets one.
  /// Several nodes behind one place follow each other in the order of the calls.
  uint32_t add_before(uint32_t place, GraphNode node);
  uint32_t add_after(uint32_t place, GraphNode node);
  uint32_t add_last(GraphNode node);

  void move_after(uint32_t node, uint32_t place);
  void move_before(uint32_t node, uint32_t place);
  /// Moves a node to the front, behind nodes that were moved there before it.
  void move_first(uint32_t node);
  void move_last(uint32_t node);

  /// Replaces a value by `with` in results and in all readers except the node that computes `with`.
  void replace(ValueRef value, ValueRef with);
  /// The value that readers of `value` will read.
  ValueRef resolve(ValueRef value) const;
  /// Removes a node. After replacements, no node may read it.
  void remove(uint32_t node);

  /// Reorders and renumbers the graph's nodes and results. Throws Error if a node reads a removed or a later
  /// node; then the graph must not be used.
  void finish();
  /// After `finish`: the new position of a value.
  ValueRef now(ValueRef value) const {
    value = resolve(value);
    return {number_[value.node], value.output};
  }

 private:
  static constexpr uint32_t removed = UINT32_MAX;
  struct Link {
    uint32_t before, after;
    uint32_t last_behind;  // the last node that was added or moved behind this one
    uint32_t place;        // the node behind which this one was added or moved, if any
  };

  uint32_t count() const { return static_cast<uint32_t>(old_ + added_.size()); }
  /// `ends` is the sentinel of the list.
  Link& link(uint32_t number) { return number == ends ? ends_ : links_[number]; }
  uint32_t add(GraphNode node);
  void unlink(uint32_t node);
  void put_between(uint32_t node, uint32_t before, uint32_t after);
  void put_behind(uint32_t node, uint32_t place);
  /// What replaces a value; null if nothing does.
  const ValueRef* instead(ValueRef value) const;
  ValueRef resolve_for(uint32_t reader, ValueRef value) const;
  bool keeps_order() const;
  [[noreturn]] void fail(const GraphNode& reader, std::string_view why) const;

  static constexpr uint32_t ends = UINT32_MAX - 1;
  static constexpr uint32_t none = UINT32_MAX;

  Graph& graph_;
  const size_t old_;
  std::deque<GraphNode> added_;
  std::vector<Link> links_;
  Link ends_;
  // What replaces values: first outputs by their nodes, the others by value.
  std::vector<ValueRef> instead_of_first_;
  std::unordered_map<uint64_t, ValueRef> instead_;
  std::vector<uint32_t> number_;
};

}  // namespace espalier
