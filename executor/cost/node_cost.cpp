// FLOPs and bytes of each node of a plan.
#include <algorithm>
#include <set>

#include "espalier/executor/cost/cost_model.h"
#include "espalier/executor/plan/plan_data.h"

namespace espalier::internal {

namespace {

class Counter {
 public:
  explicit Counter(const PlanData& plan) : plan_(plan), graph_(plan.graph) {}

  std::vector<NodeCost> run() {
    find_gradients();
    find_rows();
    std::vector<NodeCost> costs(graph_.nodes.size());
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
      if (plan_.memory.runs[i] && !exchanges(i)) costs[i] = cost(i);
    return costs;
  }

 private:
  /// Returns true for nodes that only communicate and compute nothing.
  bool exchanges(uint32_t i) const {
    if (!plan_.replication || is_bucket(i)) return false;
    return plan_.memory.gradient_wait == i || graph_.nodes[i].op->effect() == Effect::communicates;
  }
  bool is_bucket(uint32_t i) const {
    return std::ranges::any_of(plan_.memory.buckets, [&](const BucketPlan& b) { return b.node == i; });
  }
  bool gathers(uint32_t i) const {
    return is_bucket(i) || (plan_.replication && plan_.memory.gradient_wait == i);
  }
  /// The value below any views.
  ValueRef behind(ValueRef v) const {
    while (graph_.nodes[v.node].op->is_view() && !plan_.memory.runs[v.node])
      v = graph_.nodes[v.node].inputs[0];
    return v;
  }

  /// Gradients of parameters, whose size does not depend on the number of rows.
  void find_gradients() {
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
      if (gathers(i))
        for (const ValueRef& v : graph_.nodes[i].inputs) gradients_.insert(behind(v));
  }
  /// Marks the nodes whose work is in proportion to the rows: those that depend on a feed, up to the buckets.
  void find_rows() {
    rows_.assign(graph_.nodes.size(), false);
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& n = graph_.nodes[i];
      if (n.op->feed()) rows_[i] = true;
      // Fused gradient descent is a matrix product of values that depend on the batch.
      if (gathers(i) || (n.tag == Tag::update && n.op->kind() != OpKind::matmul)) continue;
      for (const ValueRef& v : n.inputs)
        if (rows_[v.node]) rows_[i] = true;
    }
  }

  double bytes_of(ValueRef v, double elements) const {
    return elements * static_cast<double>(size_of(graph_.spec(v).dtype));
  }
  double elements_of(ValueRef v) const { return static_cast<double>(graph_.spec(v).shape.elements()); }
  /// The number of distinct elements: broadcast elements count once.
  double elements_read(ValueRef v) const { return std::min(elements_of(v), elements_of(behind(v))); }

  void add_bytes(NodeCost& cost, ValueRef v, double bytes) const {
    (rows_[v.node] && !gradients_.count(v) ? cost.bytes : cost.fixed_bytes) += bytes;
  }
  /// Returns true if output k of an op that copies is placed at its input, so that nothing is copied.
  bool is_there(uint32_t i, uint32_t k) const {
    const GraphNode& n = graph_.nodes[i];
    if (!n.op->traits().only_copies || n.inputs.size() != n.outputs.size()) return false;
    const Place &to = plan_.memory.places[i][k],
                &from = plan_.memory.places[n.inputs[k].node][n.inputs[k].output];
    return to.in == from.in && to.index == from.index && to.layout.offset == from.layout.offset;
  }

  NodeCost cost(uint32_t i) const {
    const GraphNode& n = graph_.nodes[i];
    NodeCost cost;
    cost.rows = rows_[i];
    double elements = 0;
    std::set<ValueRef> read;
    for (uint32_t k = 0; k < n.inputs.size(); ++k) {
      const ValueRef v = n.inputs[k];
      if (!n.op->reads_elements(k) || is_there(i, std::min<uint32_t>(k, written(n) - 1)) ||
          !read.insert(v).second)
        continue;
      double count = elements_read(v);
      if (n.op->traits().picks_from.contains(k)) count = std::min(count, elements_of({i, 0}));
      elements += count;
      add_bytes(cost, behind(v), bytes_of(v, count));
    }
    for (uint32_t k = 0; k < n.outputs.size(); ++k)
      if (!is_there(i, k)) {
        elements += elements_of({i, k});
        add_bytes(cost, {i, k}, bytes_of({i, k}, elements_of({i, k})));
      }
    NodeWork work{{}, n.outputs, elements};
    for (const ValueRef& input : n.inputs) work.inputs.push_back(&graph_.spec(input));
    const NodeFlops flops = n.op->cost(work);
    cost.flops = flops.elementwise;
    cost.product_flops = flops.product;
    cost.product_type = flops.product_type;
    return cost;
  }
  static uint32_t written(const GraphNode& n) { return static_cast<uint32_t>(n.outputs.size()); }

  const PlanData& plan_;
  const Graph& graph_;
  std::set<ValueRef> gradients_;
  std::vector<bool> rows_;
};

}  // namespace

std::vector<NodeCost> node_costs(const PlanData& plan) { return Counter(plan).run(); }

}  // namespace espalier::internal
