#include <algorithm>
#include <numeric>
#include <set>

#include "espalier/executor/gradient_bucket.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// The nodes of updates that the next value of a parameter is made of.
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

}  // namespace

bool gather_gradients(Graph& graph, const std::vector<Variable>& parameters,
                      const std::vector<ValueRef>& gradients) {
  std::set<ValueRef> read;
  for (const GraphNode& n : graph.nodes)
    if (n.tag == Tag::update) read.insert(n.inputs.begin(), n.inputs.end());
  std::vector<size_t> order(gradients.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t k) { return !read.count(gradients[k]); });
  if (order.empty()) return false;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return parameters[a].node()->id < parameters[b].node()->id; });

  std::vector<Variable> members;
  GraphNode bucket;
  std::map<ValueRef, std::vector<uint32_t>> slots;  // one gradient may be that of several parameters
  for (const size_t k : order) {
    slots[gradients[k]].push_back(static_cast<uint32_t>(members.size()));
    members.push_back(parameters[k]);
    bucket.inputs.push_back(gradients[k]);
    bucket.outputs.push_back(graph.spec(gradients[k]));
  }
  const uint32_t at = std::max_element(bucket.inputs.begin(), bucket.inputs.end())->node + 1;
  bucket.tag = Tag::backward;
  bucket.where = graph.nodes[at - 1].where;

  // Updates read what the bucket hands on, each that of its own parameter.
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
      input = {UINT32_MAX, slot == own.end() ? own[0] : *slot};
    }
  }
  bucket.op = std::make_shared<GradientBucket>(std::move(members));
  graph.nodes.insert(graph.nodes.begin() + at, std::move(bucket));
  for (uint32_t i = at + 1; i < graph.nodes.size(); ++i)
    for (ValueRef& input : graph.nodes[i].inputs)
      input.node = input.node == UINT32_MAX ? at : input.node + (input.node >= at);
  for (ValueRef& result : graph.results) result.node += result.node >= at;
  return true;
}

}  // namespace espalier
