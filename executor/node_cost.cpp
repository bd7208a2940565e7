// FLOPs and bytes of each node of a plan.
#include <algorithm>
#include <set>

#include "espalier/executor/cost_model.h"
#include "espalier/executor/fused/matmul_ops.h"
#include "espalier/executor/gradient_bucket.h"
#include "espalier/executor/parameter_gather.h"
#include "espalier/executor/plan_data.h"

namespace espalier {

namespace {

/// One for each element that an instruction computes, or folds.
double flops_of(const Program& program) {
  double flops = 0;
  for (const Instruction& n : program.instructions) {
    const auto elements = static_cast<double>(program.elements);
    if (n.kind != Instruction::Kind::map || n.level == Level::full)
      flops += elements;
    else
      flops += n.level == Level::row ? elements / static_cast<double>(program.row) : 1;
  }
  return flops;
}

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
  /// Whether nothing is computed there: replicas wait for each other.
  bool exchanges(uint32_t i) const {
    return plan_.replication && (plan_.replication->arrival == i || as_parameter_gather(*graph_.nodes[i].op));
  }
  bool gathers(uint32_t i) const {
    if (dynamic_cast<const GradientBucket*>(graph_.nodes[i].op.get())) return true;
    if (!plan_.replication) return false;
    const auto& buckets = plan_.replication->buckets;
    return plan_.replication->arrival == i ||
           std::any_of(buckets.begin(), buckets.end(), [&](const auto& b) { return b.node == i; });
  }
  /// What a view shows.
  ValueRef behind(ValueRef v) const {
    while (graph_.nodes[v.node].op->is_view() && !plan_.memory.runs[v.node])
      v = graph_.nodes[v.node].inputs[0];
    return v;
  }

  /// Gradients of parameters are as large with few rows as with many.
  void find_gradients() {
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
      if (gathers(i))
        for (const ValueRef& v : graph_.nodes[i].inputs) gradients_.insert(behind(v));
  }
  /// Whose work follows the rows of the batch: what is made of it, until gradients are gathered.
  void find_rows() {
    rows_.assign(graph_.nodes.size(), false);
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      const GraphNode& n = graph_.nodes[i];
      if (n.op->feed()) rows_[i] = true;
      // Plain gradient descent may be one product of what comes from the batch.
      if (gathers(i) || (n.tag == Tag::update && n.op->kind() != OpKind::matmul)) continue;
      for (const ValueRef& v : n.inputs)
        if (rows_[v.node]) rows_[i] = true;
    }
  }

  double bytes_of(ValueRef v, double elements) const {
    return elements * static_cast<double>(size_of(graph_.spec(v).dtype));
  }
  double elements_of(ValueRef v) const { return static_cast<double>(graph_.spec(v).shape.elements()); }
  /// Broadcasting shows elements more than once that are there once.
  double elements_read(ValueRef v) const { return std::min(elements_of(v), elements_of(behind(v))); }

  void add_bytes(NodeCost& cost, ValueRef v, double bytes) const {
    (rows_[v.node] && !gradients_.count(v) ? cost.bytes : cost.fixed_bytes) += bytes;
  }
  /// Whether an output of an op that copies lies where its input does.
  bool is_there(uint32_t i, uint32_t k) const {
    const GraphNode& n = graph_.nodes[i];
    if (!n.op->only_copies() || n.inputs.size() != n.outputs.size()) return false;
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
      if (!n.op->needs_value(k) || is_there(i, std::min<uint32_t>(k, written(n) - 1)) ||
          !read.insert(v).second)
        continue;
      double count = elements_read(v);
      if (!n.op->reads_all(k)) count = std::min(count, elements_of({i, 0}));
      elements += count;
      add_bytes(cost, behind(v), bytes_of(v, count));
    }
    for (uint32_t k = 0; k < n.outputs.size(); ++k)
      if (!is_there(i, k)) {
        elements += elements_of({i, k});
        add_bytes(cost, {i, k}, bytes_of({i, k}, elements_of({i, k})));
      }
    count_flops(cost, i, elements);
    return cost;
  }
  static uint32_t written(const GraphNode& n) { return static_cast<uint32_t>(n.outputs.size()); }

  void count_flops(NodeCost& cost, uint32_t i, double elements) const {
    const GraphNode& n = graph_.nodes[i];
    const auto product = [&](double results, size_t a, MatmulForm form) {
      const Spec& left = graph_.spec(n.inputs[a]);
      const int64_t k = left.shape.end()[form.transpose_a ? -2 : -1];
      cost.product_flops = 2 * results * static_cast<double>(k);
      cost.product_type = left.dtype;
    };
    if (const auto* epilogue = dynamic_cast<const MatmulEpilogue*>(n.op.get())) {
      product(static_cast<double>(epilogue->product().shape.elements()), 0, epilogue->form());
      cost.flops = flops_of(epilogue->program());
    } else if (const auto* update = dynamic_cast<const MatmulUpdate*>(n.op.get())) {
      product(elements_of({i, 0}), 2, update->form());
    } else if (const auto form = n.op->matmul_form()) {
      product(elements_of({i, 0}), 0, *form);
    } else if (const auto* fused = dynamic_cast<const FusedOp*>(n.op.get())) {
      cost.flops = flops_of(fused->program());
    } else if (const auto* group = dynamic_cast<const FusedGroup*>(n.op.get())) {
      for (const FusedGroup::Member& member : group->members()) cost.flops += flops_of(member.op->program());
    } else {
      cost.flops = elements;
    }
  }

  const PlanData& plan_;
  const Graph& graph_;
  std::set<ValueRef> gradients_;
  std::vector<bool> rows_;
};

}  // namespace

std::vector<NodeCost> node_costs(const PlanData& plan) { return Counter(plan).run(); }

}  // namespace espalier
