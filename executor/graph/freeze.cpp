#include "espalier/executor/graph/graph.h"

#include <set>
#include <utility>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/error.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/random_streams.h"
#include "espalier/core/recompute.h"
#include "espalier/core/step_assignments.h"
#include "espalier/core/train_phase.h"
#include "espalier/core/tree.h"

namespace espalier {

namespace {

/// Gives a source the sizes of the batches.
void set_sizes(GraphNode& source, const FeedSizes& sizes) {
  const Feed& feed = **source.op->feed();
  const auto known = sizes.find(&feed);
  Shape& shape = source.outputs[0].shape;
  if (known == sizes.end() || shape.rank() == 0) return;
  if (!known->second.open.empty()) {
    const std::vector<OpenAxis> open = feed.open_axes();
    for (size_t i = 0; i < open.size(); ++i)
      if (open[i].output == source.op->feed_output()) shape.dims()[open[i].axis] = known->second.open[i];
  }
  shape.dims()[0] = known->second.rows;
}

/// What forward passes assign to a state, in order: the nodes that order it, and the values.
using Assignments = std::vector<std::pair<uint32_t, ValueRef>>;

/// The end of a step of training: values that forward passes have computed are written into states.
void add_assignments(Graph& graph, const std::vector<uint32_t>& leaves,
                     const std::map<uint32_t, Assignments>& assigned, std::optional<ValueRef> succeeded) {
  const auto add = [&](OpPtr op, SmallVector<ValueRef, 2> inputs) {
    GraphNode n;
    n.op = std::move(op);
    n.outputs = {graph.spec(inputs.back())};
    n.where = graph.nodes[inputs.back().node].where;
    n.inputs = std::move(inputs);
    n.tag = Tag::update;
    graph.nodes.push_back(std::move(n));
    return static_cast<uint32_t>(graph.nodes.size() - 1);
  };
  std::vector<uint32_t> stored;
  for (const uint32_t leaf : leaves) stored.push_back(add(store_op(), {assigned.at(leaf).back().second}));
  if (succeeded)
    for (size_t i = 0; i < leaves.size(); ++i)
      stored[i] = add(make_op("where", {}), {*succeeded, {stored[i], 0}, {leaves[i], 0}});
  for (size_t i = 0; i < leaves.size(); ++i) add(write_state_op(), {{leaves[i], 0}, {stored[i], 0}});
}

/// The value of the last assignment of `leaf` so far that stands before a node; none if none does.
std::optional<ValueRef> assigned_before(const std::map<uint32_t, Assignments>& assigned, uint32_t leaf,
                                        uint32_t node) {
  const auto known = assigned.find(leaf);
  if (known == assigned.end()) return {};
  for (auto each = known->second.rbegin(); each != known->second.rend(); ++each)
    if (each->first < node) return each->second;
  return {};
}

/// The value of a further assignment of a state, computed from what those before have assigned: what lies
/// between is there a second time.
ValueRef value_after(Graph& graph, const std::map<uint32_t, Assignments>& assigned, uint32_t leaf,
                     ValueRef value, const std::source_location& where) {
  const uint32_t first = assigned.at(leaf).back().first;
  const std::vector<uint32_t> between = between_assignments(
      first, value.node,
      [&](uint32_t i) {
        SmallVector<uint32_t, 4> inputs;
        for (const ValueRef& input : graph.nodes[i].inputs) inputs.push_back(input.node);
        return inputs;
      },
      [&](uint32_t input, uint32_t i) { return assigned_before(assigned, input, i).has_value(); });
  std::map<uint32_t, uint32_t> made;
  const auto repeated = [&](ValueRef input, uint32_t reader) {
    if (const auto known = made.find(input.node); known != made.end())
      return ValueRef{known->second, input.output};
    return assigned_before(assigned, input.node, reader).value_or(input);
  };
  for (const uint32_t i : between) {
    check_repeatable(*graph.nodes[i].op, *graph.nodes[leaf].op, graph.nodes[first].where, where);
    GraphNode copy = graph.nodes[i];
    for (ValueRef& input : copy.inputs) input = repeated(input, i);
    made.emplace(i, static_cast<uint32_t>(graph.nodes.size()));
    graph.nodes.push_back(std::move(copy));
  }
  return repeated(value, static_cast<uint32_t>(graph.nodes.size()));
}

/// The input of a choice by phase that a plan computes.
size_t chosen_by_phase(bool inference) { return inference ? 1 : 0; }

/// The nodes that a step computes, in the order of writing.
std::vector<Node*> nodes_of_step(const std::vector<Variable>& roots, bool inference) {
  std::vector<Node*> nodes;
  TreeWalk walk(roots);
  while (Node* node = walk.next()) {
    nodes.push_back(node);
    if (chooses_by_phase(node->op()))
      walk.enter(node->inputs[chosen_by_phase(inference)].node());
    else
      walk.enter_inputs(*node);
  }
  sort_by_age(nodes);
  return nodes;
}

/// Which outputs of nodes of several the step reads.
using OutputsRead = std::set<std::pair<const Node*, uint32_t>>;
OutputsRead outputs_read(const std::vector<Node*>& tree, const std::vector<Variable>& roots) {
  OutputsRead read;
  for (const Variable& root : roots) read.emplace(root.node(), root.output());
  for (const Node* node : tree)
    for (const Edge& input : node->inputs)
      if (input.node()->outputs.size() > 1) read.emplace(input.node(), input.output());
  return read;
}

/// Sets what a node makes. In inference its op is replaced by that for inference if this makes all that is
/// read: results may be gradients, which read what their forward pass keeps.
void infer_calm(const Graph& graph, const Node& node, bool inference, const OutputsRead& read, GraphNode& n) {
  n.outputs = infer_outputs(graph, n);
  while (const OpPtr calm = inference ? n.op->for_inference() : nullptr) {
    const OpPtr given = std::exchange(n.op, calm);
    const Specs all = std::exchange(n.outputs, infer_outputs(graph, n));
    for (uint32_t k = 0; k < all.size(); ++k) {
      if (!read.contains({&node, k}) || (k < n.outputs.size() && n.outputs[k] == all[k])) continue;
      n.op = given;
      n.outputs = all;
      return;
    }
  }
}

}  // namespace

Graph freeze(const std::vector<Variable>& results, const std::vector<Variable>& updates,
             const FeedSizes& sizes, bool inference, const Variable& succeeded) {
  std::vector<Variable> roots = results;
  roots.insert(roots.end(), updates.begin(), updates.end());
  const std::vector<Node*> tree = nodes_of_step(roots, inference);
  Graph graph;
  graph.nodes.reserve(tree.size());
  const OutputsRead read = inference ? outputs_read(tree, roots) : OutputsRead();
  NodeMap position;
  std::optional<uint32_t> collective;        // the previous one
  std::map<uint32_t, Assignments> assigned;  // by the forward pass, by leaf
  std::vector<uint32_t> written;             // these leaves, in the order of their first assignments
  for (const Node* node : tree) {
    GraphNode n;
    n.op = node->op_;
    n.tag = node->tag;
    n.where = node->where;
    for (const Edge& input : node->inputs) n.inputs.push_back({position.find(input.node()), input.output()});
    if (chooses_by_phase(*n.op)) n.inputs = {n.inputs[chosen_by_phase(inference)]};
    if (is_recomputed(*n.op)) n.inputs = {n.inputs[0]};
    if (orders_assignment(*n.op)) {
      const uint32_t leaf = n.inputs[1].node;
      if (!inference) {
        ValueRef value = n.inputs[2];
        if (assigned.contains(leaf))
          value = value_after(graph, assigned, leaf, value, n.where);
        else
          written.push_back(leaf);
        assigned[leaf].emplace_back(static_cast<uint32_t>(graph.nodes.size()), value);
      }
      n.inputs = {n.inputs[0]};
    }
    if (n.op->effect() == Effect::communicates) {  // an additional input, not read, fixes their order
      if (collective) n.inputs.push_back({*collective, 0});
      collective = static_cast<uint32_t>(graph.nodes.size());
    }
    if (is_constant(*n.op)) {
      n.constant = std::make_shared<Tensor>(node->outputs[0].value);
      n.outputs = {n.constant->spec()};
    } else if (n.op->is_leaf()) {
      n.leaf = Variable(const_cast<Node*>(node));
      n.outputs = {node->outputs[0].spec};
    } else {
      infer_calm(graph, *node, inference, read, n);
    }
    if (n.op->is_random()) {
      InputSpecs specs;
      for (const ValueRef& input : n.inputs) specs.push_back(&graph.spec(input));
      n.stream = std::exchange(graph.streams, graph.streams + streams_of(*n.op, specs));
    }
    if (n.op->feed()) set_sizes(n, sizes);
    position.insert(node, static_cast<uint32_t>(graph.nodes.size()));
    graph.nodes.push_back(std::move(n));
  }
  std::optional<ValueRef> condition;
  if (succeeded.defined() && !written.empty())
    condition = ValueRef{position.find(succeeded.node()), succeeded.output()};
  add_assignments(graph, written, assigned, condition);
  for (const Variable& result : results)
    graph.results.push_back({position.find(result.node()), result.output()});
  return graph;
}

}  // namespace espalier
