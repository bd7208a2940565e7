#include <algorithm>
#include <numeric>
#include <set>

#include "espalier/core/assignment_ops.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/executor/sharding/gradient_bucket.h"

namespace espalier {

namespace {

/// The update nodes below the assignment of a parameter.
std::vector<bool> update_of(const Graph& graph, const Node* parameter) {
  std::vector<bool> part(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const GraphNode& n = graph.nodes[i];
    if (n.op->has_side_effects()) part[i] = graph.nodes[n.inputs[0].node].leaf.node() == parameter;
    if (!part[i]) continue;
    for (const ValueRef& input : n.inputs)
      if (graph.nodes[input.node].tag == Tag::update) part[input.node] = true;
  }
  return part;
}

/// Moves the update nodes that depend on these gradients behind all other nodes.
void move_readers_back(Graph& graph, std::vector<ValueRef>& gradients) {
  const std::set<ValueRef> read(gradients.begin(), gradients.end());
  const size_t count = graph.nodes.size();
  std::vector<bool> behind(count, false);
  GraphRewriter rewriter(graph);
  for (uint32_t i = 0; i < count; ++i) {
    const GraphNode& n = graph.nodes[i];
    // No leaf is written before all replicas have come so far.
    behind[i] = is_store(*n.op) || (n.tag == Tag::update && n.op->traits().edits_input);
    for (const ValueRef& input : n.inputs)
      if (behind[input.node] || (n.tag == Tag::update && read.count(input))) behind[i] = true;
    if (behind[i]) rewriter.move_last(i);
  }
  rewriter.finish();
  for (ValueRef& gradient : gradients) gradient = rewriter.now(gradient);
}

}  // namespace

bool gather_gradients(Graph& graph, const std::vector<Variable>& parameters, std::vector<ValueRef> gradients,
                      const std::vector<size_t>& exchanged, bool scattered) {
  const bool for_replicas = !exchanged.empty();
  if (for_replicas) move_readers_back(graph, gradients);  // the loss may be the last node
  std::set<ValueRef> read;
  for (const GraphNode& n : graph.nodes)
    if (n.tag == Tag::update) read.insert(n.inputs.begin(), n.inputs.end());
  std::vector<size_t> order(gradients.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t k) { return !read.count(gradients[k]); });
  if (order.empty() && !for_replicas) return false;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return parameters[a].node()->id < parameters[b].node()->id; });

  std::vector<Variable> members;
  std::vector<ValueRef> values;
  std::map<ValueRef, std::vector<uint32_t>> slots;  // several parameters may have one gradient
  for (const size_t k : order) {
    slots[gradients[k]].push_back(static_cast<uint32_t>(members.size()));
    members.push_back(parameters[k]);
    values.push_back(gradients[k]);
  }
  for (const size_t result : exchanged) {
    members.emplace_back();
    values.push_back(graph.results[result]);
  }
  uint32_t last_value = std::max_element(values.begin(), values.end())->node;
  for (uint32_t i = last_value + 1; for_replicas && i < graph.nodes.size(); ++i)  // in one order on all
    if (graph.nodes[i].op->effect() == Effect::communicates) last_value = i;

  // One bucket; for replicas one for each dtype, followed by the WaitForGradients node.
  GraphRewriter rewriter(graph);
  const auto insert = [&](GraphNode n) {
    n.tag = order.empty() ? Tag::forward : Tag::backward;
    n.where = graph.nodes[last_value].where;
    return rewriter.add_after(last_value, std::move(n));
  };
  uint32_t last = 0;
  GraphNode wait;
  wait.inputs = SmallVector<ValueRef, 2>(values.size());
  std::map<std::pair<bool, DType>, std::vector<uint32_t>> kinds;  // slots, by (scattered, dtype)
  for (uint32_t slot = 0; slot < values.size(); ++slot)
    kinds[{scattered && members[slot].defined(), for_replicas ? graph.spec(values[slot]).dtype : DType()}]
        .push_back(slot);
  for (const auto& [kind, own] : kinds) {
    GraphNode bucket;
    std::vector<Variable> whose;
    for (const uint32_t slot : own) {
      whose.push_back(members[slot]);
      bucket.inputs.push_back(values[slot]);
      bucket.outputs.push_back(graph.spec(values[slot]));
    }
    bucket.op = std::make_shared<GradientBucket>(std::move(whose), kind.first);
    last = insert(std::move(bucket));
    for (uint32_t k = 0; k < own.size(); ++k) wait.inputs[own[k]] = {last, k};
  }
  if (for_replicas) {
    for (const ValueRef& value : values) wait.outputs.push_back(graph.spec(value));
    wait.op = std::make_shared<WaitForGradients>();
    last = insert(std::move(wait));
  }

  // Updates read the outputs of the last node, each the slot of its own parameter.
  std::map<uint32_t, std::vector<bool>> owned;  // by slot
  for (const auto& [gradient, own] : slots)
    if (own.size() > 1)
      for (const uint32_t slot : own) owned[slot] = update_of(graph, members[slot].node());
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].tag != Tag::update) continue;
    for (ValueRef& input : graph.nodes[i].inputs) {
      const auto found = slots.find(input);
      if (found == slots.end()) continue;
      const std::vector<uint32_t>& own = found->second;
      const auto slot =
          std::find_if(own.begin(), own.end(), [&](uint32_t s) { return own.size() == 1 || owned[s][i]; });
      input = {last, slot == own.end() ? own[0] : *slot};
    }
  }
  auto slot = static_cast<uint32_t>(values.size() - exchanged.size());
  for (const size_t result : exchanged) {
    for (GraphNode& n : graph.nodes)  // states get what all micro-batches have together
      if (is_store(*n.op) && n.inputs[0] == graph.results[result]) n.inputs[0] = {last, slot};
    graph.results[result] = {last, slot++};
  }
  rewriter.finish();
  return true;
}

bool gather_gradients(StepGraph& step) {
  return gather_gradients(step.graph, step.parameters, step.gradients, step.summed_results, step.scatters);
}

}  // namespace espalier
