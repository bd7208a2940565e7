#include "espalier/executor/passes/rematerialization.h"

#include "espalier/executor/graph/rewriter.h"

namespace espalier {

Readers::Readers(const Graph& graph, const MemoryPlan& plan) {
  const auto n = static_cast<uint32_t>(graph.nodes.size());
  is_seen_through.resize(n);
  behind.resize(n);
  readers.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    const GraphNode& node = graph.nodes[i];
    is_seen_through[i] = node.op->is_view() && !plan.runs[i];
    behind[i] = is_seen_through[i] ? behind[node.inputs[0].node] : i;
    if (is_seen_through[i]) continue;
    for (size_t k = 0; k < node.inputs.size(); ++k)
      if (auto& all = readers[behind[node.inputs[k].node]];
          node.op->reads_elements(k) && (all.empty() || all.back() != i))
        all.push_back(i);
  }
  for (const ValueRef& result : graph.results) readers[behind[result.node]].push_back(n);
}

namespace {

class Copying {
 public:
  Copying(const Graph& base, Graph& graph, const Readers& readers, const DropPoints& gaps)
      : base_(base),
        rewriter_(graph),
        readers_(readers),
        gaps_(gaps),
        reader_(static_cast<uint32_t>(base.nodes.size())),
        is_placed_(base.nodes.size(), false),
        copies_(base.nodes.size(), none) {}

  void run(std::vector<ValueRef>& results) {
    const auto end = static_cast<uint32_t>(base_.nodes.size());
    for (uint32_t i = 0; i < end; ++i) {
      if (readers_.is_seen_through[i]) continue;
      reader_ = i;
      read_inputs(rewriter_.node(i), i, i);
    }
    reader_ = end;
    for (ValueRef& result : results) result = at(result, end);
    for (uint32_t i = 0; i < end; ++i)
      if (readers_.is_seen_through[i] && !is_placed_[i]) rewriter_.remove(i);
    rewriter_.finish();
  }
  uint32_t position(uint32_t i) const { return rewriter_.now({i, 0}).node; }

 private:
  static constexpr uint32_t none = no_gap;

  void read_inputs(GraphNode& n, uint32_t i, uint32_t when) {
    const GraphNode& base = base_.nodes[i];
    for (size_t k = 0; k < n.inputs.size(); ++k)
      n.inputs[k] = n.op->reads_elements(k) ? at(base.inputs[k], when) : original(base.inputs[k]);
  }

  /// Moves a view, and the views below it, to its first reader.
  ValueRef original(ValueRef v) {
    if (!readers_.is_seen_through[v.node] || is_placed_[v.node]) return v;
    is_placed_[v.node] = true;
    for (const ValueRef& input : base_.nodes[v.node].inputs) (void)original(input);
    if (reader_ < base_.nodes.size())
      rewriter_.move_before(v.node, reader_);
    else
      rewriter_.move_last(v.node);
    return v;
  }

  /// The value for a reader at position `when`: the original or a copy.
  ValueRef at(ValueRef v, uint32_t when) {
    const uint32_t i = v.node;
    if (copies_[i] != none) return {copies_[i], v.output};
    if (readers_.is_seen_through[i]) {
      const ValueRef shown = base_.nodes[i].inputs[0];
      if (at(shown, when) == original(shown)) return original(v);
    } else if (gaps_[i] == no_gap || when <= gaps_[i]) {
      return v;
    }
    GraphNode copy = base_.nodes[i];
    read_inputs(copy, i, when);
    copies_[i] = reader_ < base_.nodes.size() ? rewriter_.add_before(reader_, std::move(copy))
                                              : rewriter_.add_last(std::move(copy));
    return {copies_[i], v.output};
  }

  const Graph& base_;
  GraphRewriter rewriter_;
  const Readers& readers_;
  const DropPoints& gaps_;
  uint32_t reader_;              // the current reader: copies and views are inserted before it
  std::vector<bool> is_placed_;  // for views
  std::vector<uint32_t> copies_;
};

}  // namespace

Rematerialized::Rematerialized(const Graph& base, const Readers& readers, const DropPoints& gaps)
    : graph(base) {
  Copying copying(base, graph, readers, gaps);
  copying.run(graph.results);
  for (uint32_t i = 0; i < base.nodes.size(); ++i) position.push_back(copying.position(i));
}

}  // namespace espalier
