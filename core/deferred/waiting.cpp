#include "espalier/core/deferred/waiting.h"

#include <fmt/format.h>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/deferred/batch.h"
#include "espalier/core/deferred/run_schedule.h"
#include "espalier/core/deferred/schedule_cache.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/random_streams.h"
#include "espalier/core/tree.h"

namespace espalier {

namespace {

/// What waits in this thread; null while the thread ends.
thread_local WaitingGraph* waiting_graph = nullptr;
WaitingGraph& waiting_here() {
  struct Own : WaitingGraph {
    Own() { waiting_graph = this; }
    ~Own() { waiting_graph = nullptr; }
  };
  static thread_local Own graph;
  return graph;
}

thread_local int evaluations_running = 0;  // a kernel may evaluate what it has deferred
struct Running {
  Running() { ++evaluations_running; }
  ~Running() { --evaluations_running; }
};

bool can_wait(const Op& op) {
  if (op.effect() != Effect::none && op.effect() != Effect::random) return false;
  return !orders_assignment(op);
}

/// Computes operands that wait elsewhere: in another thread, or since their computation failed.
void compute_operands(const std::vector<Edge>& list) {
  const auto is_listed = [&](const Node& node) {
    return node.place < list.size() && list[node.place].node() == &node;
  };
  for (uint32_t i = 0; i < list.size(); ++i)  // the place of what another thread has computed is its row
    if (list[i].node()->waits) list[i].node()->place = i;
  for (const Edge& edge : list)
    for (const Edge& input : operands_of(*edge.node()))
      if (Node& node = *input.node(); node.waits && !is_listed(node)) ensure_value(node);
}

[[noreturn]] void refuse_changed(const Node& reader, const Node& leaf) {
  located(reader.where, [&] {
    throw Error(fmt::format(
        "{}: this node waited (Deferred) while the {} it reads was updated; ask for its value before "
        "the update",
        reader.op().name(), leaf.op().name()));
  });
  throw;
}

/// A graph of those nodes that still wait. Throws Error if a leaf has been assigned since a node was written
/// that reads it.
WaitingGraph graph_of(const std::vector<Edge>& nodes) {
  compute_operands(nodes);
  WaitingGraph graph;
  for (const Edge& edge : nodes) {
    Node& node = *edge.node();
    if (!node.waits) continue;
    for (const Edge& input : operands_of(node))
      if (input.node()->is_leaf() && input.node()->version > node.id) refuse_changed(node, *input.node());
    graph.add(node, schedule_cache().kinds);
  }
  return graph;
}

void compute_graph(WaitingGraph& graph) {
  const ComputeAtOnce at_once;
  const Running running;
  ScheduleCache& cache = schedule_cache();
  EvaluationReport report;
  const int64_t before = kernels_run_here();
  const auto find = [&] {
    return cache.schedule_of(graph, deferred_options().policy, report.schedule_known);
  };
  auto schedule = find();
  if (!fits_held_nodes(*schedule, graph)) {
    cache.forget(schedule);
    schedule = find();
  }
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
ThreadKernels& kernels_here() {
  static thread_local ThreadKernels kernels;
  return kernels;
}

bool wait_for_value(Node& node) {
  if (!can_wait(node.op())) return false;
  WaitingGraph& graph = waiting_here();
  ScheduleCache& cache = schedule_cache();
  if (graph.size() == 0 && evaluations_running == 0) cache.make_room();
  constexpr size_t many = 4096;  // what nothing will read does not wait for long
  if (graph.size() % many == 0) graph.drop_unread();
  if (graph.dropped() > many && 2 * graph.dropped() > graph.size() && graph.is_current())
    graph = graph_of(graph.nodes());
  if (node.op().is_random()) {  // eager evaluation draws in the order of writing
    InputSpecs specs;
    for (const Edge& input : node.inputs) specs.push_back(&input.spec());
    node.rare().stream = next_streams_of(node.op(), specs);
    node.drawn = true;
  }
  node.waits = true;
  graph.add(node, cache.kinds);
  return true;
}

Variable waiting_part(const OpPtr& op, const Variable& leaf) {
  const BuildContext& now = build_context();
  WaitingGraph& graph = waiting_here();
  if (Node* const part = graph.part_of(*leaf.node(), *op);
      part && part->tag == now.tag && part->stops_gradient == now.no_grad &&
      part->needs_gradient == (leaf.node()->needs_gradient && !now.no_grad))
    return Variable(part, 0);
  Variable part = apply(op, {&leaf}, std::source_location::current());
  if (part.node()->waits) graph.note_part(*part.node());
  return part;
}

void last_reader_gone(const Node* node, uint32_t place) noexcept {
  if (waiting_graph) waiting_graph->note_unread(node, place);
}

void computed_apart(Node& node) {
  node.waits = false;
  computations_apart().fetch_add(1, std::memory_order_release);
}

namespace {
void compute_alone(Node& node) {
  computations_apart().fetch_add(1, std::memory_order_release);
  WaitingGraph graph = graph_of(waiting_below(node));
  compute_graph(graph);
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
  WaitingGraph& here = waiting_here();
  if (here.size() == 0) return;
  here.drop_unread();
  WaitingGraph graph = std::exchange(here, {});
  std::vector<Edge> nodes;
  try {
    if (!graph.is_current()) {
      nodes = graph.nodes();
      graph = graph_of(nodes);
    }
    if (!graph.empty()) compute_graph(graph);
  } catch (...) {
    if (nodes.empty()) nodes = graph.nodes();
    compute_each(nodes);
    throw;
  }
  graph.clear();
  if (here.size() == 0) here = std::move(graph);  // with the memory of its lists
}

void compute_waiting(Node& node) {
  if (waiting_here().lists(node)) {
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
    if (batch.form == BatchForm::whole) {
      node.outputs[k].value = value;
      continue;
    }
    Layout layout;
    layout.shape = node.outputs[k].spec.shape;
    layout.offset = value.layout().offset + static_cast<int64_t>(node.place) * value.strides()[0];
    layout.strides.append(value.strides().begin() + (batch.form == BatchForm::row ? 1 : 0),
                          value.strides().end());
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
