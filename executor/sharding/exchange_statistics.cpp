#include "espalier/executor/sharding/exchange_statistics.h"

#include <map>

#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/sharding/shard_reduction.h"
#include "espalier/ops/elementwise/arithmetic.h"

namespace espalier {

namespace {

class Exchange {
 public:
  Exchange(Graph& graph, const BatchShardings& shardings, double fraction)
      : graph_(graph), shardings_(shardings), fraction_(fraction), rewriter_(graph) {}

  void change(const InputChange& change) {
    ValueRef& input = graph_.nodes[change.node].inputs[change.input];
    const bool reduces = change.kind == InputChange::Kind::reduce;
    auto& known = reduces ? reduced_ : weighed_;
    auto found = known.find(input);
    if (found == known.end())
      found = known.emplace(input, reduces ? reduced(input, change.node) : weighed(input)).first;
    input = found->second;
  }
  /// The value as a sum over replicas.
  ValueRef as_sum(ValueRef v) {
    if (shardings_[v.node][v.output].sharding == BatchSharding::sum) return v;
    const auto found = weighed_.find(v);
    return found != weighed_.end() ? found->second : weighed_.emplace(v, weighed(v)).first->second;
  }
  GraphRewriter& rewriter() { return rewriter_; }

 private:
  GraphNode like(ValueRef v, OpPtr op, const std::vector<ValueRef>& inputs) {
    GraphNode n;
    n.op = std::move(op);
    n.inputs = {inputs.begin(), inputs.end()};
    n.outputs = {graph_.spec(v)};
    n.tag = graph_.nodes[v.node].tag;
    n.where = graph_.nodes[v.node].where;
    return n;
  }
  ValueRef reduced(ValueRef v, uint32_t reader) {
    std::vector<ValueRef> inputs{v};
    if (last_) inputs.push_back(*last_);
    const bool means = shardings_[v.node][v.output].sharding == BatchSharding::mean;
    last_ = {rewriter_.add_before(reader, like(v, std::make_shared<ShardReduction>(means), inputs)), 0};
    return *last_;
  }
  /// Right behind the value, since it may be read there first.
  ValueRef weighed(ValueRef v) {
    GraphNode weight = like(v, constant_op(), {});
    weight.constant = std::make_shared<Tensor>(full({}, fraction_, graph_.spec(v).dtype));
    weight.outputs = {weight.constant->spec()};
    const uint32_t number = rewriter_.add_after(v.node, std::move(weight));
    return {rewriter_.add_after(v.node, like(v, multiply_op(), {v, {number, 0}})), 0};
  }

  Graph& graph_;
  const BatchShardings& shardings_;
  double fraction_;
  GraphRewriter rewriter_;
  std::map<ValueRef, ValueRef> reduced_, weighed_;
  std::optional<ValueRef> last_;  // the last reduction
};

}  // namespace

void exchange_statistics(StepGraph& step, const ExchangedSharding& sharding, double fraction, bool sums) {
  Graph& graph = step.graph;
  for (const auto& [node, value] : sharding.constants) graph.make_constant(node, value);
  Exchange exchange(graph, sharding.shardings, fraction);
  for (const InputChange& change : sharding.changes) exchange.change(change);
  for (const size_t result : sums ? step.summed_results : std::vector<size_t>())
    graph.results[result] = exchange.as_sum(graph.results[result]);
  std::map<ValueRef, ValueRef> summed;
  std::vector<ValueRef> none;
  for (ValueRef& gradient : sums ? step.gradients : none)
    if (const ValueRef sum = exchange.as_sum(gradient); sum != gradient)
      gradient = summed.emplace(gradient, sum).first->second;
  for (GraphNode& n : graph.nodes)
    if (n.tag == Tag::update)
      for (ValueRef& input : n.inputs)
        if (const auto found = summed.find(input); found != summed.end()) input = found->second;
  exchange.rewriter().finish();
  for (ValueRef& gradient : step.gradients) gradient = exchange.rewriter().now(gradient);
}

}  // namespace espalier
