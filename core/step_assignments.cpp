#include "espalier/core/step_assignments.h"

#include <algorithm>
#include <utility>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/error.h"
#include "espalier/core/recompute.h"
#include "espalier/core/train_phase.h"
#include "espalier/core/tree.h"
#include "espalier/core/variable.h"

namespace espalier {

namespace {

Node* state_of(const Node& order) { return order.inputs[1].node(); }

/// What a node is computed from: inputs that it only orders, or that stand for inference, are none.
std::span<const Edge> read_inputs(const Node& node) {
  const bool first_alone =
      orders_assignment(node.op()) || chooses_by_phase(node.op()) || is_recomputed(node.op());
  return {node.inputs.begin(), first_alone ? 1 : node.inputs.size()};
}

}  // namespace

void StepAssignments::plan(std::span<Node* const> nodes, std::span<const uint32_t> orders,
                           const FeedSnapshot& snapshot) {
  *this = {};
  std::map<const Node*, std::pair<uint64_t, CallSite>> last;
  const auto see = [&](const Node* state, uint64_t id, const CallSite& where) {
    const auto first = first_orders_.emplace(state, id).first;
    first->second = std::min(first->second, id);
    const auto known = last.emplace(state, std::pair{id, where}).first;
    if (known->second.first < id) known->second = {id, where};
  };
  for (const AssignedState& state : snapshot.assigned) see(state.leaf.node(), state.order, state.where);
  const auto carried_out = [&](uint32_t at) {
    return std::ranges::find(snapshot.assigned, nodes[at]->id, &AssignedState::order) !=
           snapshot.assigned.end();
  };
  std::vector<uint32_t> to_come;
  std::ranges::remove_copy_if(orders, std::back_inserter(to_come), carried_out);
  if (to_come.empty()) return;
  NodeMap positions;
  for (uint32_t i = 0; i < nodes.size(); ++i) positions.insert(nodes[i], i);
  for (const uint32_t at : to_come) {
    const Node& order = *nodes[at];
    const Node* state = state_of(order);
    orders_.push_back(&order);
    const auto before = last.find(state);
    const bool is_first = before == last.end();
    const auto [since, where] = is_first ? std::pair{order.id, order.where} : before->second;
    if (since > order.id) refuse_earlier_assignment(state->op(), where, order.where);
    see(state, order.id, order.where);
    if (is_first) continue;
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
  const Edge value = again == again_.end() ? node.inputs[2] : repeated(*again, node.inputs[2], node);
  values_.emplace_back(&node, input_in(&snapshot, value).clone());
}

void StepAssignments::assign_all(const FeedSnapshot& snapshot) {
  std::vector<std::pair<Node*, Tensor>> leaves;
  for (const auto& [order, value] : values_) {
    Node& leaf = *state_of(*order);
    ensure_value(leaf);
    // The first entry of a state has its value before the step; those behind it say what has been carried
    // out.
    const AssignedState* known = snapshot.assigned_to(&leaf);
    const Tensor before = known        ? known->before
                          : leaf.bound ? leaf.outputs[0].value.clone()
                                       : leaf.outputs[0].value;
    snapshot.assigned.push_back(
        {order->inputs[1], before, known ? known->version : leaf.version, order->id, order->where});
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
