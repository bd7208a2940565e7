#include "espalier/executor/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/record.h"
#include "espalier/executor/collective_ops.h"

namespace espalier {

void Graph::replace(uint32_t node, ValueRef with) {
  for (GraphNode& n : nodes)
    for (ValueRef& input : n.inputs)
      if (input.node == node) input = with;
  for (ValueRef& result : results)
    if (result.node == node) result = with;
}

void Graph::make_constant(uint32_t node, Tensor value) {
  GraphNode& n = nodes[node];
  n.op = constant_op();
  n.inputs.clear();
  n.constant = std::move(value);
}

void Graph::remove_unless(const std::vector<bool>& keep) {
  std::vector<uint32_t> position(nodes.size());
  std::vector<GraphNode> kept;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    position[i] = static_cast<uint32_t>(kept.size());
    if (keep[i]) kept.push_back(std::move(nodes[i]));
  }
  nodes = std::move(kept);
  for (GraphNode& n : nodes)
    for (ValueRef& input : n.inputs) input.node = position[input.node];
  for (ValueRef& result : results) result.node = position[result.node];
}

void Graph::reorder(const std::vector<double>& position) {
  std::vector<uint32_t> order(nodes.size()), now(nodes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return position[a] < position[b]; });
  std::vector<GraphNode> sorted;
  for (uint32_t k = 0; k < order.size(); ++k) {
    now[order[k]] = k;
    sorted.push_back(std::move(nodes[order[k]]));
  }
  nodes = std::move(sorted);
  for (GraphNode& n : nodes)
    for (ValueRef& input : n.inputs) input.node = now[input.node];
  for (ValueRef& result : results) result.node = now[result.node];
}

std::string line_of(const std::source_location& where) {
  return fmt::format("{}:{}", std::filesystem::path(where.file_name()).filename().string(), where.line());
}

std::string Graph::str() const {
  std::string text;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const GraphNode& n = nodes[i];
    text += fmt::format("%{} = {}", i, n.op->name());
    if (const std::string attributes = to_string(n.op->attributes()); !attributes.empty())
      text += fmt::format("({})", attributes);
    for (const ValueRef& input : n.inputs)
      text +=
          input.output ? fmt::format(" %{}.{}", input.node, input.output) : fmt::format(" %{}", input.node);
    for (const Spec& spec : n.outputs) text += fmt::format(" : {} {}", name(spec.dtype), spec.shape.str());
    if (n.tag != Tag::forward) text += fmt::format(" [{}]", name(n.tag));
    text += '\n';
  }
  text += "results:";
  for (const ValueRef& result : results) text += fmt::format(" %{}", result.node);
  return text + "\n";
}

namespace {

/// All nodes below these, in the order of writing.
std::vector<Node*> tree_below(const std::vector<Variable>& roots) {
  std::vector<Node*> todo, nodes;
  for (const Variable& root : roots) todo.push_back(root.node());
  NodeMap seen;
  while (!todo.empty()) {
    Node* node = todo.back();
    todo.pop_back();
    if (seen.find(node) != NodeMap::none) continue;
    seen.insert(node, 0);
    nodes.push_back(node);
    for (const Edge& input : node->inputs) todo.push_back(input.node());
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->id < b->id; });
  return nodes;
}

std::vector<Spec> infer(const Graph& graph, const GraphNode& node) {
  InputSpecs specs;
  for (const ValueRef& input : node.inputs) specs.push_back(&graph.spec(input));
  const Specs outputs = located(node.where, [&] { return node.op->infer(specs); });
  return {outputs.begin(), outputs.end()};
}

}  // namespace

Graph freeze(const std::vector<Variable>& results, const std::vector<Variable>& updates, const FeedRows& rows,
             bool inference) {
  std::vector<Variable> roots = results;
  roots.insert(roots.end(), updates.begin(), updates.end());
  const std::vector<Node*> tree = tree_below(roots);
  Graph graph;
  NodeMap position;
  std::optional<uint32_t> collective;  // the last one
  for (const Node* node : tree) {
    GraphNode n{node->op_, {}, {}, node->tag, node->where, {}, {}};
    for (const Edge& input : node->inputs) n.inputs.push_back({position.find(input.node()), input.output()});
    if (is_collective(*n.op)) {
      if (collective) n.inputs.push_back({*collective, 0});
      collective = static_cast<uint32_t>(graph.nodes.size());
    }
    if (inference)
      if (OpPtr calm = n.op->for_inference()) n.op = std::move(calm);
    if (is_constant(*n.op)) {
      n.constant = node->outputs[0].value;
      n.outputs = {n.constant.spec()};
    } else if (n.op->is_leaf()) {
      n.leaf = Variable(const_cast<Node*>(node));
      n.outputs = {node->outputs[0].spec};
    } else {
      n.outputs = infer(graph, n);
    }
    if (n.op->is_random()) n.stream = graph.streams++;
    if (const auto* feed = n.op->feed())
      if (const auto known = rows.find(feed->get()); known != rows.end() && n.outputs[0].shape.rank())
        n.outputs[0].shape.dims()[0] = known->second;
    position.insert(node, static_cast<uint32_t>(graph.nodes.size()));
    graph.nodes.push_back(std::move(n));
  }
  for (const Variable& result : results)
    graph.results.push_back({position.find(result.node()), result.output()});
  return graph;
}

void verify(const Graph& graph, std::string_view after) {
  const auto fail = [&](uint32_t node, std::string_view why) {
    throw Error(fmt::format("the plan is broken after '{}': %{} ({}, written at {}) {}", after, node,
                            graph.nodes[node].op->name(), line_of(graph.nodes[node].where), why));
  };
  std::map<uint32_t, uint32_t> assigned;  // leaf -> assignment
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    if (n.outputs.empty()) fail(i, "has no output");
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const ValueRef& input = n.inputs[k];
      if (input.node >= i) fail(i, "comes before its input");
      if (input.output >= graph.nodes[input.node].outputs.size())
        fail(i, "reads an output that does not exist");
      if (!n.op->needs_value(k)) continue;
      if (assigned.count(input.node)) fail(i, "reads a leaf that has been assigned already");
    }
    if (n.op->has_side_effects()) {
      if (!graph.nodes[n.inputs[0].node].leaf.defined()) fail(i, "assigns what is no leaf");
      if (!assigned.emplace(n.inputs[0].node, i).second) fail(i, "assigns a leaf for the second time");
    }
    if (n.op->is_leaf() || n.op->feed()) continue;
    const std::vector<Spec> specs = infer(graph, n);
    if (!(specs == n.outputs)) fail(i, "does not have the shape its inputs give it");
  }
  for (const ValueRef& result : graph.results)
    if (result.node >= graph.nodes.size())
      throw Error(fmt::format("the plan lost a result after '{}'", after));
}

}  // namespace espalier
