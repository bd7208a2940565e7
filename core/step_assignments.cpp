#include "espalier/core/step_assignments.h"

#include <algorithm>
#include <utility>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/error.h"
#include "espalier/core/train_phase.h"
#include "espalier/core/tree.h"
#include "espalier/core/variable.h"

namespace espalier {

namespace {

Node* state_of(const Node& order) { return order.inputs[1].node(); }

/// What a node is computed from: inputs that it only orders, or that stand for inference, are none.
std::span<const Edge> read_inputs(const Node& node) {
  const bool first_alone = orders_assignment(node.op()) || chooses_by_phase(node.op());
  return {node.inputs.begin(), first_alone ? 1 : node.inputs.size()};
}

}  // namespace

void StepAssignments::plan(std::span<Node* const> nodes, std::span<const uint32_t> orders,
                           const FeedSnapshot& snapshot) {
  *this = {};
  for (const AssignedState& state : snapshot.assigned) first_orders_.emplace(state.leaf.node(), state.order);
  for (const uint32_t at : orders) first_orders_.emplace(state_of(*nodes[at]), nodes[at]->id);
  NodeMap positions;
  for (uint32_t i = 0; i < nodes.size(); ++i) positions.insert(nodes[i], i);
  std::map<const Node*, std::pair<uint64_t, std::source_location>> last;
  for (const AssignedState& state : snapshot.assigned)
    last.emplace(state.leaf.node(), std::pair{state.order, state.where});
  for (const uint32_t at : orders) {
    const Node& order = *nodes[at];
    const Node* state = state_of(order);
    const auto [known, is_first] = last.emplace(state, std::pair{order.id, order.where});
    if (is_first) continue;
    const auto [since, where] = std::exchange(known->second, {order.id, order.where});
    if (since > order.id) refuse_earlier_assignment(state->op(), where, order.where);
    const auto after = std::ranges::upper_bound(nodes, since, {}, [](const Node* node) { return node->id; });
    const std::vector<uint32_t> between = between_assignments(
        static_cast<uint32_t>(std::max<int64_t>(after - nodes.begin() - 1, 0)),
        positions.find(order.inputs[2].node()),
        [&](uint32_t i) {
          SmallVector<uint32_t, 4> inputs;
          for (const Edge& input : read_inputs(*nodes[i])) inputs.push_back(positions.find(input.node()));
          return inputs;
        },
        [&](uint32_t input, uint32_t i) {
          return input < nodes.size() && assigned_before(nodes[input], nodes[i]->id);
        });
    for (const uint32_t i : between) {
      check_repeatable(nodes[i]->op(), state->op(), where, order.where);
      repeated_[i].push_back(static_cast<uint32_t>(again_.size()));
    }
    again_.push_back({.order = &order, .made = {}});
  }
}

bool StepAssignments::assigned_before(const Node* state, uint64_t id) const {
  const auto first = first_orders_.find(state);
  return first != first_orders_.end() && first->second < id;
}

/// What a node is repeated with in place of an input.
Edge StepAssignments::repeated(const Again& again, const Edge& input, const Node& reader) const {
  if (const auto made = again.made.find(input.node()); made != again.made.end())
    return {made->second.node(), input.output()};
  if (!assigned_before(input.node(), reader.id)) return input;
  Tensor value = input.value();  // assigned by an evaluation of this step before
  for (const auto& [order, assigned] : values_)
    if (state_of(*order) == input.node()) value = assigned;
  return Edge(Variable(value, reader.where));
}

void StepAssignments::repeat(uint32_t position, const Node& node, const FeedSnapshot& snapshot) {
  for (const uint32_t k : repeated_.at(position)) {
    const Variable made(new Node(node.op_, node.where));
    Node& copy = *made.node();
    for (const Edge& input : node.inputs) copy.inputs.push_back(repeated(again_[k], input, node));
    for (const Output& output : node.outputs) copy.outputs.push_back({output.spec, {}});
    copy.lazy = node.lazy;
    copy.tag = node.tag;
    located(node.where, [&] { compute(copy, 0, &snapshot); });
    again_[k].made.emplace(&node, made);
  }
}

void StepAssignments::order(const Node& node, const FeedSnapshot& snapshot) {
  const auto again = std::ranges::find(again_, &node, &Again::order);
  if (again == again_.end())
    values_.emplace_back(&node, input_in(&snapshot, node.inputs[2]).clone());
  else
    values_.emplace_back(&node, repeated(*again, node.inputs[2], node).value().clone());
}

void StepAssignments::assign_all(const FeedSnapshot& snapshot) {
  std::vector<std::pair<Node*, Tensor>> leaves;
  for (const auto& [order, value] : values_) {
    Node& leaf = *state_of(*order);
    const auto known =
        std::ranges::find(snapshot.assigned, &leaf, [](const AssignedState& s) { return s.leaf.node(); });
    if (known == snapshot.assigned.end()) {
      const Tensor& before = leaf.outputs[0].value;
      snapshot.assigned.push_back(
          {order->inputs[1], leaf.bound ? before.clone() : before, leaf.version, order->id, order->where});
    } else {
      known->order = order->id;
      known->where = order->where;
    }
    const auto same = std::ranges::find(leaves, &leaf, &std::pair<Node*, Tensor>::first);
    if (same == leaves.end())
      leaves.emplace_back(&leaf, value);
    else
      same->second = value;
  }
  assign(leaves);
  *this = {};
}

}  // namespace espalier
