// Checkpoints of scans under a memory budget. Of the states in front of all steps, which the gradient of a
// scan reads, every s-th is kept, and the steps between are run again: with s = √n, 2√n states for n steps.
// Griewank, Achieving logarithmic growth of temporal and spatial complexity, 1992.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "espalier/executor/passes/passes.h"
#include "espalier/executor/plan/memory.h"
#include "espalier/ops/loop/scan_op.h"

namespace espalier {

namespace {

constexpr int64_t fewest_steps = 6;  // of fewer, as many states would remain

/// A scan and its gradients.
struct Loop {
  uint32_t forward;
  std::set<uint32_t> backward;
  int64_t steps = 0, bytes = 0;
};

/// The number of that output among the states that a scan keeps for each step.
std::optional<size_t> kept_state(const Graph& graph, ValueRef value) {
  const Op& op = *graph.nodes[value.node].op;
  const LoopBodyPtr body = loop_body_of(op);
  if (!body || scan_form_of(op).keeps != 1 || value.output < body->outputs.size()) return std::nullopt;
  return value.output - body->outputs.size();
}

/// Whether a node is the gradient of a scan, and reads the states that it has kept in their places.
bool is_gradient(const Graph& graph, const GraphNode& node, uint32_t scan) {
  const LoopBodyPtr body = loop_body_of(*node.op), forward = loop_body_of(*graph.nodes[scan].op);
  if (!body || !body->gradient_of || body->gradient_of->number != forward->number) return false;
  if (scan_form_of(*node.op).reverse == scan_form_of(*graph.nodes[scan].op).reverse) return false;
  if (scan_form_of(*node.op).keeps || body->sequences < forward->states + forward->sequences) return false;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const ValueRef input = node.inputs[k];
    const std::optional<size_t> state =
        input.node == scan ? kept_state(graph, input) : std::optional<size_t>();
    const bool is_place = k >= body->states && k < body->states + forward->states;
    if (state != (is_place ? std::optional<size_t>(k - body->states) : std::nullopt)) return false;
  }
  return true;
}

/// The scans whose kept states are read by their gradients alone, those that keep most first.
std::vector<Loop> loops_of(const Graph& graph) {
  std::map<uint32_t, Loop> loops;
  std::set<uint32_t> others;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    for (const ValueRef& input : graph.nodes[i].inputs) {
      if (!kept_state(graph, input)) continue;
      if (!is_gradient(graph, graph.nodes[i], input.node)) others.insert(input.node);
      loops[input.node].backward.insert(i);
    }
  for (const ValueRef& result : graph.results)
    if (kept_state(graph, result)) others.insert(result.node);
  std::vector<Loop> found;
  for (auto& [scan, loop] : loops) {
    if (others.contains(scan)) continue;
    const GraphNode& n = graph.nodes[scan];
    const LoopBodyPtr body = loop_body_of(*n.op);
    loop.forward = scan;
    loop.steps = graph.spec(n.inputs[body->states]).shape[0];
    for (size_t k = body->outputs.size(); k < n.outputs.size(); ++k) loop.bytes += n.outputs[k].bytes();
    if (loop.steps >= fewest_steps) found.push_back(std::move(loop));
  }
  std::ranges::stable_sort(found, std::greater(), &Loop::bytes);
  return found;
}

void set_op(Graph& graph, uint32_t node, OpPtr op) {
  graph.nodes[node].op = std::move(op);
  graph.nodes[node].outputs = infer_outputs(graph, graph.nodes[node]);
}

void keep_checkpoints(Graph& graph, const Loop& loop) {
  const auto stride = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(loop.steps))));
  const Op& scan = *graph.nodes[loop.forward].op;
  set_op(graph, loop.forward, scan_op(loop_body_of(scan), {scan_form_of(scan).reverse, stride}));
  for (const uint32_t node : loop.backward) {
    const Op& gradient = *graph.nodes[node].op;
    set_op(graph, node, checkpointed_scan_op(loop_body_of(gradient), scan_form_of(gradient).reverse, stride));
  }
}

}  // namespace

bool checkpoint_scans(Graph& graph, const CompileOptions& options) {
  const auto arena_of = [&](const Graph& g) { return plan_memory(g, options.runs("in_place")).arena_bytes; };
  std::vector<Loop> loops = loops_of(graph);
  if (loops.empty()) return false;
  int64_t arena = arena_of(graph);
  bool changed = false;
  for (const Loop& loop : loops) {
    if (arena <= options.memory_budget) break;
    Graph other = graph;
    keep_checkpoints(other, loop);
    const int64_t less = arena_of(other);
    if (less >= arena) continue;
    graph = std::move(other);
    arena = less;
    changed = true;
  }
  return changed;
}

}  // namespace espalier
