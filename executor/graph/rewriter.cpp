#include "espalier/executor/graph/rewriter.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/random_streams.h"

namespace espalier {

namespace {

uint64_t key_of(ValueRef v) { return uint64_t{v.node} << 32 | v.output; }

}  // namespace

GraphRewriter::GraphRewriter(Graph& graph) : graph_(graph), old_(graph.nodes.size()) {
  const auto n = static_cast<uint32_t>(old_);
  links_.reserve(old_ + old_ / 4);
  for (uint32_t i = 0; i < n; ++i) links_.push_back({i ? i - 1 : ends, i + 1 < n ? i + 1 : ends, i, none});
  ends_ = {n ? n - 1 : ends, n ? 0 : ends, ends, none};
}

uint32_t GraphRewriter::add(GraphNode node) {
  if (node.op->is_random() && node.stream < 0) {
    InputSpecs specs;
    for (const ValueRef& input : node.inputs) specs.push_back(&spec(input));
    node.stream = std::exchange(graph_.streams, graph_.streams + streams_of(*node.op, specs));
  }
  added_.push_back(std::move(node));
  links_.push_back({none, none, count() - 1, none});
  return count() - 1;
}

uint32_t GraphRewriter::add_before(uint32_t place, GraphNode node) {
  const uint32_t number = add(std::move(node));
  put_between(number, link(place).before, place);
  return number;
}

uint32_t GraphRewriter::add_after(uint32_t place, GraphNode node) {
  const uint32_t number = add(std::move(node));
  put_behind(number, place);
  return number;
}

uint32_t GraphRewriter::add_last(GraphNode node) { return add_before(ends, std::move(node)); }

void GraphRewriter::move_after(uint32_t node, uint32_t place) {
  unlink(node);
  put_behind(node, place);
}

void GraphRewriter::move_before(uint32_t node, uint32_t place) {
  if (node == place) return;
  unlink(node);
  put_between(node, link(place).before, place);
}

void GraphRewriter::move_first(uint32_t node) { move_after(node, ends); }
void GraphRewriter::move_last(uint32_t node) { move_before(node, ends); }

void GraphRewriter::unlink(uint32_t node) {
  Link& own = link(node);
  link(own.before).after = own.after;
  link(own.after).before = own.before;
  if (own.place != none && link(own.place).last_behind == node) link(own.place).last_behind = own.before;
  own.place = none;
}

void GraphRewriter::put_between(uint32_t node, uint32_t before, uint32_t after) {
  link(before).after = node;
  link(after).before = node;
  link(node).before = before;
  link(node).after = after;
}

void GraphRewriter::put_behind(uint32_t node, uint32_t place) {
  const uint32_t last = link(place).last_behind;
  put_between(node, last, link(last).after);
  link(place).last_behind = node;
  link(node).place = place;
}

void GraphRewriter::replace(ValueRef value, ValueRef with) {
  if (value.output != 0) {
    instead_[key_of(value)] = with;
    return;
  }
  if (instead_of_first_.size() <= value.node) instead_of_first_.resize(count(), {none, 0});
  instead_of_first_[value.node] = with;
}

const ValueRef* GraphRewriter::instead(ValueRef value) const {
  if (value.output == 0) {
    if (value.node >= instead_of_first_.size()) return nullptr;
    const ValueRef& with = instead_of_first_[value.node];
    return with.node == none ? nullptr : &with;
  }
  if (instead_.empty()) return nullptr;
  const auto found = instead_.find(key_of(value));
  return found == instead_.end() ? nullptr : &found->second;
}

ValueRef GraphRewriter::resolve_for(uint32_t reader, ValueRef value) const {
  for (const ValueRef* with = instead(value); with && with->node != reader; with = instead(value))
    value = *with;
  return value;
}

ValueRef GraphRewriter::resolve(ValueRef value) const { return resolve_for(none, value); }

void GraphRewriter::remove(uint32_t node) {
  unlink(node);
  link(node).before = removed;
}

/// Returns true if no node was added, and those that remain are in their old order.
bool GraphRewriter::keeps_order() const {
  if (!added_.empty()) return false;
  uint32_t next = 0;
  for (uint32_t i = ends_.after; i != ends; i = links_[i].after) {
    if (i < next) return false;
    next = i + 1;
  }
  return true;
}

void GraphRewriter::finish() {
  number_.assign(count(), removed);
  const auto renew = [&](uint32_t reader, ValueRef& value, const GraphNode& n) {
    value = resolve_for(reader, value);
    if (number_[value.node] == removed)
      fail(n,
           link(value.node).before == removed ? "reads a node that was removed" : "comes before its input");
    value.node = number_[value.node];
  };
  const bool in_place = keeps_order();
  std::vector<GraphNode>& spare = graph_.spare_;
  if (!in_place) spare.reserve(count());
  uint32_t kept = 0;
  for (uint32_t i = ends_.after; i != ends; i = link(i).after) {
    GraphNode& n = node(i);
    for (ValueRef& input : n.inputs) renew(i, input, n);
    number_[i] = kept;
    if (!in_place)
      spare.push_back(std::move(n));
    else if (i != kept)
      graph_.nodes[kept] = std::move(n);
    ++kept;
  }
  for (ValueRef& result : graph_.results) renew(none, result, GraphNode());
  if (!in_place) graph_.nodes.swap(spare);
  graph_.nodes.resize(kept);
  spare.clear();
}

void GraphRewriter::fail(const GraphNode& reader, std::string_view why) const {
  throw Error(fmt::format("the plan is broken: {} (written at {}) {}",
                          reader.op ? reader.op->name() : "a result", line_of(reader.where), why));
}

}  // namespace espalier
