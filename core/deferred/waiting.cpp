#include "espalier/core/deferred/waiting.h"

#include <algorithm>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/deferred/batch.h"
#include "espalier/core/deferred/run_schedule.h"
#include "espalier/core/deferred/schedule_cache.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/random_streams.h"

namespace espalier {

namespace {

/// What waits in a thread.
struct WaitingNodes {
  std::vector<Edge> nodes;       ///< in the order of writing; `place` of each is its number
  std::vector<Variable> pins;    ///< values that they read
  bool reads_elsewhere = false;  ///< operands that wait, but are not in this list
  size_t swept = 0;              ///< nodes that were alive when dead ones were dropped last
};
WaitingNodes& waiting_here() {
  static thread_local WaitingNodes nodes;
  return nodes;
}

bool can_wait(const Op& op) {
  if (op.effect() != Effect::none && op.effect() != Effect::random) return false;
  return !orders_assignment(op);
}

bool is_listed(const Node& node, const std::vector<Edge>& list) {
  return node.place < list.size() && list[node.place].node() == &node;
}

/// Keeps the value of an operand that does not wait.
void pin(const Edge& input, WaitingNodes& waiting) {
  const Node& node = *input.node();
  if (node.waits)
    waiting.reads_elsewhere |= !is_listed(node, waiting.nodes);
  else if (!node.is_leaf())
    waiting.pins.push_back(read_place(input).edge.variable());
}

/// Drops the nodes that only the list holds, the latest first, and numbers the others again.
void drop_dead(std::vector<Edge>& nodes) {
  bool any = false;
  for (size_t i = nodes.size(); i-- > 0;) {
    if (i >= prefetch_distance) prefetch(*nodes[i - prefetch_distance].node());
    if (!nodes[i].node()->held_once() && nodes[i].node()->waits) continue;
    nodes[i] = Edge();
    any = true;
  }
  if (!any) return;
  std::erase_if(nodes, [](const Edge& edge) { return !edge.node(); });
  for (uint32_t i = 0; i < nodes.size(); ++i) nodes[i].node()->place = i;
}

/// Computes operands that wait elsewhere: in another thread, or since their computation failed.
void compute_operands(const std::vector<Edge>& list) {
  for (uint32_t i = 0; i < list.size(); ++i) list[i].node()->place = i;
  for (const Edge& edge : list)
    for (const Edge& input : edge.node()->inputs)
      if (const Node& node = *input.node(); node.waits && !is_listed(node, list)) ensure_value(*input.node());
}

/// Computes nodes of which each has its number in the list as its `place`.
void compute_nodes(const std::vector<Edge>& list, bool reads_elsewhere) {
  const ComputeAtOnce at_once;
  if (reads_elsewhere) compute_operands(list);
  ScheduleCache& cache = schedule_cache();
  EvaluationReport report;
  const int64_t before = kernels_run_here();
  std::vector<Node*> nodes;
  nodes.reserve(list.size());
  for (const Edge& edge : list) nodes.push_back(edge.node());
  static thread_local int running = 0;  // a kernel may evaluate what it has deferred
  if (running == 0) cache.make_room();
  const WaitingGraph graph(std::move(nodes), cache.kinds);
  const auto schedule = cache.schedule_of(graph, deferred_options().policy, report.schedule_known);
  struct Nesting {
    Nesting() { ++running; }
    ~Nesting() { --running; }
  } nesting;
  if (!run_schedule(*schedule, graph, cache.kinds, report)) cache.forget(schedule);
  report.kernels_run = kernels_run_here() - before;
  set_last_evaluation(std::move(report));
}

/// All that waits below a node that another thread has made.
std::vector<Edge> waiting_below(Node& target) {
  std::vector<Node*> nodes;
  TreeWalk walk(&target);
  while (Node* node = walk.next()) {
    if (!node->waits) continue;
    nodes.push_back(node);
    walk.enter_inputs(*node);
  }
  sort_by_age(nodes);
  std::vector<Edge> edges;
  for (Node* node : nodes) edges.push_back(Edge(node, 0));
  return edges;
}

}  // namespace

bool& deferring() {
  static thread_local bool on = false;
  return on;
}
DeferredOptions& deferred_options() {
  static thread_local DeferredOptions options;
  return options;
}
int64_t& kernels_run_here() {
  static thread_local int64_t count = 0;
  return count;
}

bool wait_for_value(Node& node) {
  if (!can_wait(node.op())) return false;
  WaitingNodes& waiting = waiting_here();
  if (waiting.nodes.size() > 4096 && waiting.nodes.size() > 2 * waiting.swept) {
    drop_dead(waiting.nodes);
    waiting.swept = waiting.nodes.size();
  }
  if (node.op().is_random()) {  // eager evaluation draws in the order of writing
    InputSpecs specs;
    for (const Edge& input : node.inputs) specs.push_back(&input.spec());
    node.rare().stream = next_streams_of(node.op(), specs);
    node.drawn = true;
  }
  for (const Edge& input : node.inputs) pin(input, waiting);
  node.waits = true;
  node.place = static_cast<uint32_t>(waiting.nodes.size());
  waiting.nodes.emplace_back(&node, 0);
  return true;
}

namespace {
void compute_alone(Node& node) {
  std::vector<Edge> below = waiting_below(node);
  for (uint32_t i = 0; i < below.size(); ++i) below[i].node()->place = i;
  compute_nodes(below, true);
}

/// Computes those that can be computed. The others are in no list any more: reading one throws its error.
void compute_each(const std::vector<Edge>& nodes) {
  for (const Edge& edge : nodes) try {
      if (edge.node()->waits) compute_alone(*edge.node());
    } catch (const Error&) {
    }
}
}  // namespace

void compute_all_waiting() {
  WaitingNodes& here = waiting_here();
  if (here.nodes.empty()) return;
  WaitingNodes taken = std::exchange(here, {});
  try {
    drop_dead(taken.nodes);
    if (!taken.nodes.empty()) compute_nodes(taken.nodes, taken.reads_elsewhere);
    taken.nodes.clear();
    taken.pins.clear();
    taken.swept = 0;
    taken.reads_elsewhere = false;
    if (here.nodes.empty()) here = std::move(taken);  // with the memory of the lists
  } catch (...) {
    compute_each(taken.nodes);
    throw;
  }
}

void compute_waiting(Node& node) {
  const WaitingNodes& here = waiting_here();
  if (node.place < here.nodes.size() && here.nodes[node.place].node() == &node) {
    try {
      compute_all_waiting();
    } catch (const Error&) {  // it may be another node's
    }
  }
  if (node.waits) compute_alone(node);
}

void take_from_batch(Node& node) {
  const Batch& batch = *node.batch;
  for (uint32_t k = 0; k < node.outputs.size(); ++k) {
    Edge from = batch.outputs[k];
    ensure_value(*from.node());
    const Tensor& value = from.value();
    if (!batch.stacked) {
      node.outputs[k].value = value;
      continue;
    }
    Layout layout;
    layout.shape = node.outputs[k].spec.shape;
    layout.offset = value.layout().offset + static_cast<int64_t>(node.place) * value.strides()[0];
    layout.strides.append(value.strides().begin() + 1, value.strides().end());
    node.outputs[k].value = Tensor(value.storage(), std::move(layout), value.dtype());
  }
}

Deferred::Deferred(DeferredOptions options)
    : before_(std::exchange(deferring(), true)),
      options_before_(std::exchange(deferred_options(), options)) {}
Deferred::~Deferred() {
  deferring() = before_;
  deferred_options() = options_before_;
}

}  // namespace espalier
