// Random trees over matrices, and invariants of memory plans, for tests of the memory plan and of passes.
#pragma once
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "espalier/executor/compile.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "plan_steps.h"
#include "testing.h"

namespace espalier::testing {

/// A tree of random ops over [4, 4] matrices, scalars and rows, with parameters to train.
struct MatrixTree {
  std::mt19937 random;
  Variables parameters;
  Variables pool;
  Variable loss;

  /// `feed` makes the source of the tree; for odd seeds, kernels precede it.
  MatrixTree(unsigned seed, const std::function<Variable()>& feed) : random(seed) {
    Variable x = seed % 2 ? Variable() : feed();
    if (x.defined()) pool.push_back(x);
    for (uint64_t i = 0; i < 3; ++i) {
      parameters.push_back(parameter(numbers({4, 4}, -1, 1, i), "p" + std::to_string(i)));
      pool.push_back(parameters.back());
    }
    for (int i = 0; i < 6; ++i) pool.push_back(grow());
    if (!x.defined()) {
      x = feed();
      pool.insert(pool.end(), {x, matmul(x, pool.back()) * 0.25});
    }
    for (int i = 0; i < 19; ++i) pool.push_back(grow());
    loss = mean(tanh(pool.back()) + tanh(any()) * parameters[0] + x * parameters[1] + parameters[2]);
  }

 private:
  const Variable& any() { return pool[random() % pool.size()]; }
  Variable grow() {
    const Variable a = any(), b = any();
    switch (random() % 16) {
      case 0: return a + b;
      case 1: return a * b;
      case 2: return a - b;
      case 3: return tanh(a);
      case 4: return relu(a);
      case 5: return transpose(a);
      case 6: return matmul(a, b) * 0.25;
      case 7: return a + sum(b, 0) * 0.25;
      case 8: return reshape(reshape(a, {16}), {4, 4});
      case 9: return concat({slice(a, 0, 2, 4), slice(b, 0, 0, 2)});
      case 10: return softmax(a, static_cast<int64_t>(random() % 2));
      case 11: return broadcast_to(mean(a, 1, true), {4, 4});
      case 12: return where(greater(a, b), a, b);
      case 13: return transpose(a) + a;
      case 14: return exp(-square(a));
      default: return slice(a, 1, 0, 1) * reshape(slice(b, 0, 1, 2), {4});
    }
  }
};

/// Simulates a plan: records for each byte the value that was written last. Each reader must find the value
/// it reads intact.
inline void check_plan(const Graph& graph, const MemoryPlan& plan) {
  std::vector<int64_t> arena(static_cast<size_t>(plan.arena_bytes), -1);
  std::map<uint32_t, int64_t> leaves;  // leaf -> id of the value that it holds
  // The value that owns the bytes of `v`: views and assignments in place have no bytes of their own.
  const auto owner = [&](ValueRef v) {
    for (; !plan.runs[v.node]; v = graph.nodes[v.node].inputs[graph.nodes[v.node].op->is_view() ? 0 : 1])
      if (!graph.nodes[v.node].op->is_view() && !graph.nodes[v.node].op->has_side_effects()) break;
    return v;
  };
  const auto id = [](ValueRef v) { return static_cast<int64_t>(v.node) * 8 + v.output; };
  const auto region = [&](const Place& place) {
    const ArenaBuffer& buffer = plan.buffers[place.index];
    BOOST_REQUIRE(buffer.offset >= 0);
    BOOST_REQUIRE(buffer.offset + buffer.bytes <= plan.arena_bytes);
    for (const BucketPlan& bucket : plan.buckets) {
      if (bucket.buffer != place.index) continue;      // members have a part each
      const int64_t inside = place.layout.offset * 8;  // all are float64
      for (const BucketPlan::Member& m : bucket.members)
        if (m.offset <= inside && inside < m.offset + m.bytes)
          return std::pair(arena.begin() + buffer.offset + m.offset,
                           arena.begin() + buffer.offset + m.offset + m.bytes);
      BOOST_FAIL("a place in the bucket belongs to no member");
    }
    return std::pair(arena.begin() + buffer.offset, arena.begin() + buffer.offset + buffer.bytes);
  };
  const auto write = [&](ValueRef v) {
    const Place& place = plan.places[v.node][v.output];
    if (place.in == Place::In::arena) {
      const auto [begin, end] = region(place);
      BOOST_TEST(graph.spec(v).shape.elements() * static_cast<int64_t>(size_of(graph.spec(v).dtype)) <=
                 end - begin);
    }
    if (place.in == Place::In::leaf) leaves[place.index] = id(v);
    if (place.in != Place::In::arena) return;
    const auto [begin, end] = region(place);
    std::fill(begin, end, id(v));
  };
  const auto read = [&](ValueRef v, uint32_t reader) {
    const Place& place = plan.places[v.node][v.output];
    const int64_t wanted = id(owner(v));
    bool intact = true;
    if (place.in == Place::In::leaf) {
      const auto at = leaves.find(place.index);
      intact = (at == leaves.end() ? id({place.index, 0}) : at->second) == wanted;
    } else if (place.in == Place::In::arena) {
      const auto [begin, end] = region(place);
      intact = std::all_of(begin, end, [&](int64_t writer) { return writer == wanted; });
    }
    BOOST_TEST(intact, "%" << reader << " reads %" << v.node << ", which was overwritten, in\n"
                           << graph.str());
  };
  /// A kernel may overwrite its operands only as its op allows, and must not write two results to one place.
  const auto check_in_place = [&](uint32_t i) {
    const GraphNode& n = graph.nodes[i];
    if (n.op->traits().aliases_inputs || n.op->has_side_effects() || n.op->name() == "gradient_bucket")
      return;
    for (uint32_t k = 0; k < n.outputs.size(); ++k) {
      const Place& out = plan.places[i][k];
      const auto meets = [&](const Place& other) {
        if (out.in != other.in || out.index != other.index) return false;
        return out.in == Place::In::leaf || (out.in == Place::In::arena && region(out) == region(other));
      };
      for (size_t j = 0; j < n.inputs.size(); ++j) {
        const Place& in = plan.places[n.inputs[j].node][n.inputs[j].output];
        if (!n.op->reads_elements(j) || !meets(in)) continue;
        BOOST_TEST(n.op->can_write_over(k, j), "%" << i << " writes over its input in\n" << graph.str());
        BOOST_TEST(in.layout.contiguous());
        BOOST_TEST(in.layout.offset == out.layout.offset);
        BOOST_TEST(in.layout.shape.elements() == out.layout.shape.elements());
        BOOST_TEST(size_of(graph.spec(n.inputs[j]).dtype) == size_of(n.outputs[k].dtype));
      }
      for (uint32_t other = 0; other < k; ++other) BOOST_TEST(!meets(plan.places[i][other]));
    }
  };
  /// A kernel may write all of its workspace whenever it runs: before it reads its operands, and after it
  /// wrote.
  const auto scribble = [&](uint32_t i) {
    if (!plan.workspaces[i]) return;
    const ArenaBuffer& buffer = plan.buffers[*plan.workspaces[i]];
    BOOST_REQUIRE((buffer.offset >= 0 && buffer.offset + buffer.bytes <= plan.arena_bytes));
    std::fill_n(arena.begin() + buffer.offset, buffer.bytes, -2);
  };
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)  // batches are there before the first step
    if (graph.nodes[i].op->feed()) write({i, 0});
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    if (plan.runs[i]) check_in_place(i);
    scribble(i);
    const bool may_refuse = n.op->kind() == OpKind::other && !n.op->traits().only_copies &&
                            n.op->effect() != Effect::random && !n.op->has_side_effects() &&
                            !n.op->traits().takes_any_values &&
                            !n.op->traits().adds_back;  // the indices of these trees were taken before
    if (plan.runs[i] && may_refuse)
      BOOST_TEST(leaves.empty(), "%" << i << " may throw after leaves are written, in\n" << graph.str());
    if (plan.runs[i])
      for (uint32_t k = 0; k < n.inputs.size(); ++k)
        if (n.op->reads_elements(k) && !(n.op->has_side_effects() && k == 0)) read(n.inputs[k], i);
    if (n.op->has_side_effects()) {
      if (!plan.runs[i]) {  // the value was computed in place
        const Place& value = plan.places[n.inputs[1].node][n.inputs[1].output];
        BOOST_TEST((value.in == Place::In::leaf && value.index == n.inputs[0].node));
        read(n.inputs[1], i);
      }
      leaves[n.inputs[0].node] = id(owner({i, 0}));
    } else if (plan.runs[i]) {
      for (uint32_t k = 0; k < n.outputs.size(); ++k) write({i, k});
    }
    scribble(i);
  }
  for (const ValueRef& result : graph.results) read(result, static_cast<uint32_t>(graph.nodes.size()));
}

inline void check_buffers(const std::vector<ArenaBuffer>& buffers, int64_t total) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    BOOST_TEST(buffers[i].offset >= 0);
    BOOST_TEST(buffers[i].offset + buffers[i].bytes <= total);
    for (size_t j = 0; j < i; ++j) {
      const ArenaBuffer &a = buffers[i], &b = buffers[j];
      const bool together = a.first <= b.last && b.first <= a.last;
      const bool overlap = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      BOOST_TEST(!(together && overlap), "buffers " << i << " and " << j);
    }
  }
}

/// Checks that the gradients of these parameters are side by side, and that updates read them there.
inline void check_bucket(const PlanData& plan, const Variables& parameters) {
  BOOST_TEST(plan.memory.buckets.size() == (parameters.empty() ? 0u : 1u));
  if (plan.memory.buckets.empty()) return;
  const BucketPlan* bucket = &plan.memory.buckets[0];
  BOOST_REQUIRE(bucket->members.size() == parameters.size());
  const GraphNode& node = plan.graph.nodes[bucket->node];
  const ArenaBuffer& buffer = plan.memory.buffers[bucket->buffer];
  int64_t offset = 0;
  for (uint32_t k = 0; k < parameters.size(); ++k) {
    const BucketPlan::Member& member = bucket->members[k];
    const auto size = static_cast<int64_t>(size_of(parameters[k].dtype()));
    BOOST_TEST(member.parameter.node() == parameters[k].node());
    BOOST_TEST((node.outputs[k] == Spec{parameters[k].dtype(), parameters[k].shape()}));
    BOOST_TEST(member.offset == offset);
    BOOST_TEST(member.bytes == (parameters[k].shape().elements() * size + 63) / 64 * 64);
    const Place& place = plan.memory.places[bucket->node][k];
    BOOST_TEST((place.in == Place::In::arena && place.index == bucket->buffer));
    BOOST_TEST(place.layout.offset * size == offset);
    BOOST_TEST(place.layout.contiguous());
    const ValueRef in = node.inputs[k];
    const Place& made = plan.memory.places[in.node][in.output];
    const bool there = made.in == Place::In::arena && made.index == bucket->buffer &&
                       made.layout.offset == place.layout.offset;
    BOOST_TEST(member.copied == !there);
    offset += member.bytes;
  }
  BOOST_TEST(buffer.bytes == offset);
  for (uint32_t i = 0; i < plan.graph.nodes.size(); ++i)
    if (plan.graph.nodes[i].tag == Tag::update)
      for (const ValueRef& in : plan.graph.nodes[i].inputs)
        BOOST_TEST(
            (in.node == bucket->node || plan.graph.nodes[in.node].tag == Tag::update ||
             plan.graph.nodes[in.node].op->is_leaf() || plan.graph.nodes[in.node].op->name() == "keep"),
            "%" << i << " reads %" << in.node << " past the bucket in\n"
                << plan.graph.str());
}

/// A plan that trains by Adam with a gradient bucket.
inline std::shared_ptr<const PlanData> plan_with_bucket(const Variable& loss, const Variables& parameters,
                                                        const std::vector<std::string>& without = {}) {
  std::vector<std::pair<Variable, Variable>> gradients;
  for (const Variable& p : parameters) gradients.emplace_back(p, loss.gradient(p));
  return compile(step_of({loss}, optim::Adam(0.1).build(gradients), gradients), {}, {.without = without});
}

}  // namespace espalier::testing
