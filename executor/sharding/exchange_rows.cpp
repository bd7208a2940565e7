#include "espalier/executor/sharding/exchange_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "espalier/core/error.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/sharding/shard_gather.h"
#include "espalier/executor/sharding/shard_reduction.h"
#include "espalier/ops/rows.h"

namespace espalier {

namespace {

class RowExchange {
 public:
  RowExchange(Graph& graph, const Graph& other, BatchSizes sizes, int64_t batch_rows, bool averages)
      : graph_(graph),
        other_(other),
        sizes_(sizes),
        batch_rows_(batch_rows),
        averages_(averages),
        rewriter_(graph) {}

  void run() {
    bool any = false;
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!sums_rows(*graph_.nodes[i].op)) continue;
      any = true;
      exchange(i);
    }
    if (!any) return;
    rewriter_.finish();
    infer_again();
  }

 private:
  void exchange(uint32_t i) {
    GraphNode& n = graph_.nodes[i];
    const ValueRef values = n.inputs[0], indices = n.inputs[1];
    const int64_t count = graph_.spec(indices).shape.elements(),
                  others = other_.spec(indices).shape.elements();
    if (count == others) {  // the indices do not depend on the batch, but their gradients may
      n.inputs[0] = add(i, values, std::make_shared<ShardReduction>(averages_), graph_.spec(values));
      return;
    }
    if (count * sizes_.other != others * sizes_.part || count % sizes_.part != 0)
      throw UnsupportedError(
          fmt::format("get_executor: replicas cannot exchange the gradients of rows that '{}' ({}) looks up: "
                      "{} indices are not a number of them for each of {} rows of the batch",
                      graph_.nodes[indices.node].op->name(), line_of(n.where), count, sizes_.part));
    n.inputs[0] = gathered(i, values, averages_);
    n.inputs[1] = gathered(i, indices, false);
  }
  ValueRef gathered(uint32_t reader, ValueRef v, bool means) {
    const auto known = gathered_.find({v, means});
    if (known != gathered_.end()) return known->second;
    const Spec& own = graph_.spec(v);
    auto op = std::make_shared<ShardGather>(own.shape.elements() / sizes_.part, batch_rows_, means);
    const Spec result = op->infer({&own})[0];
    return gathered_[{v, means}] = add(reader, v, std::move(op), result);
  }
  ValueRef add(uint32_t reader, ValueRef v, OpPtr op, const Spec& result) {
    GraphNode n;
    n.op = std::move(op);
    n.inputs = {v};
    if (last_) n.inputs.push_back(*last_);
    n.outputs = {result};
    n.tag = Tag::update;
    n.where = graph_.nodes[reader].where;
    last_ = {rewriter_.add_before(reader, std::move(n)), 0};
    return *last_;
  }

  /// What is computed from the rows has as many of them as all replicas have together.
  void infer_again() {
    std::vector<bool> changed(graph_.nodes.size(), false);
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      GraphNode& n = graph_.nodes[i];
      changed[i] = sums_rows(*n.op);
      for (const ValueRef& input : n.inputs) changed[i] = changed[i] || changed[input.node];
      if (!changed[i] || n.op->has_side_effects()) continue;
      InputSpecs specs;
      for (const ValueRef& input : n.inputs) specs.push_back(&graph_.spec(input));
      const Specs outputs = n.op->infer(specs);
      n.outputs.assign(outputs.begin(), outputs.end());
    }
  }

  Graph& graph_;
  const Graph& other_;
  BatchSizes sizes_;
  int64_t batch_rows_;
  bool averages_;
  GraphRewriter rewriter_;
  std::map<std::pair<ValueRef, bool>, ValueRef> gathered_;
  std::optional<ValueRef> last_;  // the last exchange
};

}  // namespace

void exchange_rows(StepGraph& step, const Graph& other, BatchSizes sizes, int64_t batch_rows, bool averages) {
  RowExchange(step.graph, other, sizes, batch_rows, averages).run();
}

}  // namespace espalier
