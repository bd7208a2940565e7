// GraphRewriter: how passes change a graph. One place renumbers.
#pragma once
#include <deque>
#include <unordered_map>

#include "espalier/executor/graph/graph.h"

namespace espalier {

/// Until `finish`, nodes of the graph keep their numbers, and new ones are numbered from there on: inputs and
/// results may name both. Each call takes constant time, and `finish` is linear in nodes.
class GraphRewriter {
 public:
  explicit GraphRewriter(Graph& graph);

  /// The node of that number, whether it is old or new. References stay valid until `finish`.
  GraphNode& node(uint32_t number) { return number < old_ ? graph_.nodes[number] : added_[number - old_]; }
  const Spec& spec(ValueRef v) { return node(v.node).outputs[v.output]; }

  /// Adds a node at a place in the order, and returns its number. A random node without a stream gets one.
  /// Several nodes behind one place follow each other in the order of the calls.
  uint32_t add_before(uint32_t place, GraphNode node);
  uint32_t add_after(uint32_t place, GraphNode node);
  uint32_t add_last(GraphNode node);

  void move_after(uint32_t node, uint32_t place);
  void move_before(uint32_t node, uint32_t place);
  /// Behind those that were moved to the front before it.
  void move_first(uint32_t node);
  void move_last(uint32_t node);

  /// Lets all readers of a value, and results, read `with`; the node that makes `with` still reads the value.
  void replace(ValueRef value, ValueRef with);
  /// What readers of a value will read.
  ValueRef resolve(ValueRef value) const;
  /// Takes a node out. Nothing may read it any more, once replacements are made.
  void remove(uint32_t node);

  /// Brings the graph's nodes and results into the new order and numbers. Throws Error if a node that was
  /// removed is still read, or one that comes later; then the graph must not be used.
  void finish();
  /// After `finish`: where a value is now.
  ValueRef now(ValueRef value) const {
    value = resolve(value);
    return {number_[value.node], value.output};
  }

 private:
  static constexpr uint32_t removed = UINT32_MAX;
  struct Link {
    uint32_t before, after;
    uint32_t last_behind;  // the last node that was put behind this one
    uint32_t place;        // behind which this one was put, if so
  };

  uint32_t count() const { return static_cast<uint32_t>(old_ + added_.size()); }
  /// The list begins and ends at one link, which is no node.
  Link& link(uint32_t number) { return number == ends ? ends_ : links_[number]; }
  uint32_t add(GraphNode node);
  void unlink(uint32_t node);
  void put_between(uint32_t node, uint32_t before, uint32_t after);
  void put_behind(uint32_t node, uint32_t place);
  ValueRef resolve_for(uint32_t reader, ValueRef value) const;
  [[noreturn]] void fail(const GraphNode& reader, std::string_view why) const;

  static constexpr uint32_t ends = UINT32_MAX - 1;
  static constexpr uint32_t none = UINT32_MAX;

  Graph& graph_;
  const size_t old_;
  std::deque<GraphNode> added_;
  std::vector<Link> links_;
  Link ends_;
  std::unordered_map<uint64_t, ValueRef> instead_;  // by value
  std::vector<uint32_t> number_;
};

}  // namespace espalier
