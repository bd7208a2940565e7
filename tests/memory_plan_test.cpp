// The memory plan: nothing is overwritten that somebody still reads, and little is wasted.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <random>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/plan_data.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Place;

namespace {

/// A tree of random ops over [4, 4] matrices, scalars and rows, with parameters to train.
struct RandomTree {
  std::mt19937 random;
  Variables parameters;
  Variables pool;
  esp::Variable loss;

  RandomTree(unsigned seed, const esp::Variable& x) : random(seed) {
    pool.push_back(x);
    for (uint64_t i = 0; i < 3; ++i) {
      parameters.push_back(esp::parameter(numbers({4, 4}, -1, 1, i), "p" + std::to_string(i)));
      pool.push_back(parameters.back());
    }
    for (int i = 0; i < 25; ++i) pool.push_back(grow());
    loss = esp::mean(esp::tanh(pool.back()) + esp::tanh(any()) * parameters[0] + pool[0] * parameters[1] +
                     parameters[2]);
  }

 private:
  const esp::Variable& any() { return pool[random() % pool.size()]; }
  esp::Variable grow() {
    const esp::Variable a = any(), b = any();
    switch (random() % 16) {
      case 0: return a + b;
      case 1: return a * b;
      case 2: return a - b;
      case 3: return esp::tanh(a);
      case 4: return esp::relu(a);
      case 5: return esp::transpose(a);
      case 6: return esp::matmul(a, b) * 0.25;
      case 7: return a + esp::sum(b, 0) * 0.25;
      case 8: return esp::reshape(esp::reshape(a, {16}), {4, 4});
      case 9: return esp::concat({esp::slice(a, 0, 2, 4), esp::slice(b, 0, 0, 2)});
      case 10: return esp::softmax(a, static_cast<int64_t>(random() % 2));
      case 11: return esp::broadcast_to(esp::mean(a, 1, true), {4, 4});
      case 12: return esp::where(esp::greater(a, b), a, b);
      case 13: return esp::transpose(a) + a;
      case 14: return esp::exp(-esp::square(a));
      default: return esp::slice(a, 1, 0, 1) * esp::reshape(esp::slice(b, 0, 1, 2), {4});
    }
  }
};

/// Walks through a plan step by step and notes who wrote each byte last. Whoever reads must find what was
/// written for it.
void check_plan(const esp::Graph& graph, const esp::MemoryPlan& plan) {
  std::vector<int64_t> arena(static_cast<size_t>(plan.arena_bytes), -1);
  std::map<uint32_t, int64_t> leaves;  // leaf -> whose value it holds
  // Whose bytes a value is: views have none of their own.
  const auto owner = [&](esp::ValueRef v) {
    while (!plan.runs[v.node] && graph.nodes[v.node].op->is_view()) v = graph.nodes[v.node].inputs[0];
    return v;
  };
  const auto id = [](esp::ValueRef v) { return static_cast<int64_t>(v.node) * 8 + v.output; };
  const auto region = [&](const Place& place) {
    const esp::ArenaBuffer& buffer = plan.buffers[place.index];
    BOOST_REQUIRE(buffer.offset >= 0);
    BOOST_REQUIRE(buffer.offset + buffer.bytes <= plan.arena_bytes);
    for (const esp::BucketPlan& bucket : plan.buckets) {
      if (bucket.buffer != place.index) continue;      // members have a part each
      const int64_t inside = place.layout.offset * 8;  // all are float64
      for (const esp::BucketPlan::Member& m : bucket.members)
        if (m.offset <= inside && inside < m.offset + m.bytes)
          return std::pair(arena.begin() + buffer.offset + m.offset,
                           arena.begin() + buffer.offset + m.offset + m.bytes);
      BOOST_FAIL("a place in the bucket belongs to no member");
    }
    return std::pair(arena.begin() + buffer.offset, arena.begin() + buffer.offset + buffer.bytes);
  };
  const auto write = [&](esp::ValueRef v) {
    const Place& place = plan.places[v.node][v.output];
    if (place.in == Place::In::leaf) leaves[place.index] = id(v);
    if (place.in != Place::In::arena) return;
    const auto [begin, end] = region(place);
    std::fill(begin, end, id(v));
  };
  const auto read = [&](esp::ValueRef v, uint32_t reader) {
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
    BOOST_TEST(intact, "%" << reader << " reads %" << v.node << ", which is gone, in\n" << graph.str());
  };
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)  // batches are there before the first step
    if (graph.nodes[i].op->feed()) write({i, 0});
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const esp::GraphNode& n = graph.nodes[i];
    if (plan.runs[i])
      for (uint32_t k = 0; k < n.inputs.size(); ++k)
        if (n.op->needs_value(k) && !(n.op->has_side_effects() && k == 0)) read(n.inputs[k], i);
    if (n.op->has_side_effects()) {
      if (!plan.runs[i]) read(n.inputs[1], i);  // is in its place already
      leaves[n.inputs[0].node] = id({i, 0});
    } else if (plan.runs[i]) {
      for (uint32_t k = 0; k < n.outputs.size(); ++k) write({i, k});
    }
  }
  for (const esp::ValueRef& result : graph.results) read(result, static_cast<uint32_t>(graph.nodes.size()));
}

void check_buffers(const std::vector<esp::ArenaBuffer>& buffers, int64_t total) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    BOOST_TEST(buffers[i].offset >= 0);
    BOOST_TEST(buffers[i].offset + buffers[i].bytes <= total);
    for (size_t j = 0; j < i; ++j) {
      const esp::ArenaBuffer &a = buffers[i], &b = buffers[j];
      const bool together = a.first <= b.last && b.first <= a.last;
      const bool overlap = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      BOOST_TEST(!(together && overlap), "buffers " << i << " and " << j);
    }
  }
}

/// The gradients of these parameters lie side by side, and updates read them there.
void check_bucket(const esp::PlanData& plan, const Variables& parameters) {
  BOOST_TEST(plan.memory.buckets.size() == (parameters.empty() ? 0u : 1u));
  if (plan.memory.buckets.empty()) return;
  const esp::BucketPlan* bucket = &plan.memory.buckets[0];
  BOOST_REQUIRE(bucket->members.size() == parameters.size());
  const esp::GraphNode& node = plan.graph.nodes[bucket->node];
  const esp::ArenaBuffer& buffer = plan.memory.buffers[bucket->buffer];
  int64_t offset = 0;
  for (uint32_t k = 0; k < parameters.size(); ++k) {
    const esp::BucketPlan::Member& member = bucket->members[k];
    const auto size = static_cast<int64_t>(esp::size_of(parameters[k].dtype()));
    BOOST_TEST(member.parameter.node() == parameters[k].node());
    BOOST_TEST((node.outputs[k] == esp::Spec{parameters[k].dtype(), parameters[k].shape()}));
    BOOST_TEST(member.offset == offset);
    BOOST_TEST(member.bytes == (parameters[k].shape().elements() * size + 63) / 64 * 64);
    const Place& place = plan.memory.places[bucket->node][k];
    BOOST_TEST((place.in == Place::In::arena && place.index == bucket->buffer));
    BOOST_TEST(place.layout.offset * size == offset);
    BOOST_TEST(place.layout.contiguous());
    const esp::ValueRef in = node.inputs[k];
    const Place& made = plan.memory.places[in.node][in.output];
    const bool there = made.in == Place::In::arena && made.index == bucket->buffer &&
                       made.layout.offset == place.layout.offset;
    BOOST_TEST(member.copied == !there);
    offset += member.bytes;
  }
  BOOST_TEST(buffer.bytes == offset);
  for (uint32_t i = 0; i < plan.graph.nodes.size(); ++i)
    if (plan.graph.nodes[i].tag == esp::Tag::update)
      for (const esp::ValueRef& in : plan.graph.nodes[i].inputs)
        BOOST_TEST((in.node == bucket->node || plan.graph.nodes[in.node].tag == esp::Tag::update ||
                    plan.graph.nodes[in.node].op->is_leaf()),
                   "%" << i << " reads %" << in.node << " past the bucket in\n"
                       << plan.graph.str());
}

/// A plan that trains by Adam, with its gradients side by side.
std::shared_ptr<const esp::PlanData> plan_with_bucket(const esp::Variable& loss, const Variables& parameters,
                                                      const std::vector<std::string>& without = {}) {
  std::vector<std::pair<esp::Variable, esp::Variable>> gradients;
  for (const esp::Variable& p : parameters) gradients.emplace_back(p, loss.gradient(p));
  return esp::compile({loss}, optim::Adam(0.1).build(gradients), {},
                      {.without = without, .gradient_bucket = gradients});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_plan)

BOOST_AUTO_TEST_CASE(best_fit) {
  // Three steps; the second buffer can have the first one's place.
  std::vector<esp::ArenaBuffer> buffers{{64, 0, 1}, {64, 2, 3}, {128, 1, 2}};
  BOOST_TEST(esp::largest_live_set(buffers) == 192);
  BOOST_TEST(esp::place_best_fit(buffers) == 192);
  check_buffers(buffers, 192);
  std::vector<esp::ArenaBuffer> none;
  BOOST_TEST(esp::place_best_fit(none) == 0);
  BOOST_TEST(esp::largest_live_set(none) == 0);

  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<esp::ArenaBuffer> list(random() % 40);
    for (esp::ArenaBuffer& b : list) {
      b.bytes = 64 * static_cast<int64_t>(random() % 20);
      b.first = static_cast<int64_t>(random() % 30);
      b.last = b.first + static_cast<int64_t>(random() % 10);
    }
    const int64_t live = esp::largest_live_set(list), total = esp::place_best_fit(list);
    check_buffers(list, total);
    BOOST_TEST(total >= live);
    int64_t all = 0, at_most = 0;
    for (const esp::ArenaBuffer& b : list) all += b.bytes;
    for (int64_t step = 0; step < 40; ++step) {
      int64_t now = 0;
      for (const esp::ArenaBuffer& b : list) now += b.first <= step && step <= b.last ? b.bytes : 0;
      at_most = std::max(at_most, now);
    }
    BOOST_TEST(live == at_most);
    BOOST_TEST(total <= all);
  }
}

BOOST_AUTO_TEST_CASE(nothing_is_overwritten_in_random_plans) {
  for (unsigned seed = 0; seed < 60; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      const esp::Variable x = esp::placeholder("x", {4, 4}, esp::float64);
      RandomTree tree(seed, x);
      const optim::Adam adam(0.1);
      std::vector<std::pair<esp::Variable, esp::Variable>> gradients;
      for (const esp::Variable& p : tree.parameters) gradients.emplace_back(p, tree.loss.gradient(p));
      const auto updates = adam.build(gradients);
      for (const std::vector<std::string>& without :
           {std::vector<std::string>{}, {"in_place"}, {"simplify", "common_subexpressions"}}) {
        for (const bool bucket : {false, true}) {
          esp::CompileOptions how{.without = without};
          if (bucket) how.gradient_bucket = gradients;
          const auto plan = esp::compile({tree.loss, tree.pool.back()}, updates, {}, how);
          check_plan(plan->graph, plan->memory);
          check_bucket(*plan, bucket ? tree.parameters : Variables());
          check_buffers(plan->memory.buffers, plan->memory.arena_bytes);
          BOOST_TEST(plan->memory.arena_bytes >= plan->memory.largest_live_bytes);
          BOOST_TEST(plan->memory.arena_bytes <= plan->memory.all_bytes);
          for (const esp::ArenaBuffer& b : plan->memory.buffers) BOOST_TEST(b.offset % 64 == 0);
        }
      }
    }
}

BOOST_AUTO_TEST_CASE(random_trees_train_alike_every_way) {
  for (unsigned seed = 100; seed < 130; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      const esp::Tensor data = numbers({4, 4}, -1, 1, seed);
      const auto values = [](const RandomTree& tree) {
        std::vector<esp::Tensor> list;
        for (const esp::Variable& p : tree.parameters) list.push_back(p.value().clone());
        return list;
      };
      const optim::SgdOptions options{.lr = 0.1, .momentum = 0.5};
      RandomTree eager(seed, data);
      const double loss = eager.loss.item();
      eager.loss.update(optim::Sgd(options));
      const std::vector<esp::Tensor> after_one = values(eager);

      std::vector<std::vector<esp::Tensor>> after_three;
      for (const std::vector<std::string>& without :
           {std::vector<std::string>{}, {"in_place"}, esp::pass_names()}) {
        RandomTree tree(seed, esp::placeholder("x", {4, 4}, esp::float64));
        const esp::Executor executor = tree.loss.get_executor(
            {.mode = esp::Mode::training, .optimizer = optim::Sgd(options), .without = without});
        BOOST_TEST(executor.run({{"x", data}}).item() == loss, boost::test_tools::tolerance(1e-12));
        const std::vector<esp::Tensor> now = values(tree);
        for (size_t i = 0; i < now.size(); ++i) BOOST_TEST(difference(after_one[i], now[i]) < 1e-12);
        for (int step = 0; step < 2; ++step) executor.run({{"x", data}});
        after_three.push_back(values(tree));
      }
      for (size_t i = 0; i < after_one.size(); ++i) {
        BOOST_TEST(difference(after_three[0][i], after_three[1][i]) < 1e-12);
        BOOST_TEST(difference(after_three[0][i], after_three[2][i]) < 1e-12);
      }
    }
}

BOOST_AUTO_TEST_CASE(a_network_fits_in_little_more_than_its_largest_live_set) {
  esp::seed(1);
  const esp::Tensor x = esp::randn({256, 100}), y = esp::randn({256, 10});
  for (bool adam : {false, true}) {
    esp::nn::Dense first(1000), second(10);
    const optim::Optimizer optimizer = adam ? optim::Optimizer(optim::Adam(0.001)) : optim::Sgd(0.001);
    const auto loss_of = [&](const esp::Variable& in, const esp::Variable& target) {
      return esp::nn::MeanSquared()(second(esp::relu(first(in))), target);
    };
    loss_of(x, y).update(optimizer);  // makes parameters and states
    esp::reset_peak_memory();
    const int64_t before = esp::memory_stats().live_bytes;
    loss_of(x, y).update(optimizer);
    const int64_t eager = esp::memory_stats().peak_bytes - before;

    const esp::data::Distributor feed({x, y}, {.batch_size = 256});
    const auto [in, target] = feed.get_output_graphs<2>();
    const esp::Plan plan =
        loss_of(in, target).get_executor({.mode = esp::Mode::training, .optimizer = optimizer}).plan();
    BOOST_TEST(static_cast<double>(plan.arena_bytes()) <=
               1.1 * static_cast<double>(plan.largest_live_bytes()));
    BOOST_TEST(plan.arena_bytes() < eager);
    BOOST_TEST(plan.leaf_bytes() >= 4 * (100 * 1000 + 1000 + 1000 * 10 + 10));
  }
}

BOOST_AUTO_TEST_CASE(gradients_lie_side_by_side) {
  const esp::Variable x = esp::placeholder("x", {5, 3}, esp::float64);
  const esp::Variable w = esp::parameter(numbers({3, 7}), "w"), b = esp::parameter(numbers({7}), "b"),
                      v = esp::parameter(numbers({7, 2}), "v");
  const esp::Variable loss = esp::mean(esp::square(esp::matmul(esp::tanh(esp::matmul(x, w) + b), v)));
  const auto plan = plan_with_bucket(loss, {w, b, v});
  check_plan(plan->graph, plan->memory);
  check_bucket(*plan, {w, b, v});
  // 168, 56 and 112 bytes, each from a multiple of 64 on.
  const std::vector<int64_t> offsets{0, 192, 256};
  for (size_t k = 0; k < 3; ++k) {
    BOOST_TEST(plan->memory.buckets.at(0).members[k].offset == offsets[k]);
    BOOST_TEST(!plan->memory.buckets.at(0).members[k].copied);
  }
  BOOST_TEST(plan->memory.buffers[plan->memory.buckets.at(0).buffer].bytes == 384);
  BOOST_TEST(esp::Plan(plan).str().find("+192 of w\n") != std::string::npos);
  // Nothing is made in place where that is forbidden, so all are copied.
  const auto copied = plan_with_bucket(loss, {w, b, v}, {"in_place"});
  check_bucket(*copied, {w, b, v});
  for (const auto& member : copied->memory.buckets.at(0).members) BOOST_TEST(member.copied);
  BOOST_TEST(esp::Plan(copied).str().find("+192 of w  (copied)") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(gradients_that_cannot_be_made_in_the_bucket_are_copied) {
  const esp::Variable p = esp::parameter(numbers({2, 4}), "p"), q = esp::parameter(numbers({2, 4}), "q"),
                      r = esp::parameter(numbers({4, 2}), "r"), s = esp::parameter(numbers({8}), "s"),
                      t = esp::parameter(numbers({8}), "t"), k(numbers({4, 2}, 1, 2)),
                      u = esp::parameter(numbers({3, 3}), "u");
  const esp::Variable made = esp::exp(esp::reshape(t, {2, 4}));
  // Of p it is q, of q it is p; of r it is a constant; of s a number everywhere, and t has a kernel's view.
  const esp::Variable loss = esp::sum(p * q) + esp::sum(r * k) + esp::sum(s) + esp::sum(made) +
                             esp::sum(esp::exp(esp::transpose(u)));
  const Variables parameters{p, q, r, s, t, u};
  const auto plan = plan_with_bucket(loss, parameters);
  check_plan(plan->graph, plan->memory);
  check_bucket(*plan, parameters);
  const std::vector<bool> copied{true, true, true, true, false, true};
  for (size_t i = 0; i < copied.size(); ++i)
    BOOST_TEST(plan->memory.buckets.at(0).members[i].copied == copied[i], parameters[i].node()->op().name()
                                                                              << " in\n"
                                                                              << esp::Plan(plan).str());
}

BOOST_AUTO_TEST_CASE(parameters_states_and_gradients_lie_alike) {
  const esp::Variable x = esp::placeholder("x", {5, 3});
  const esp::Variable w = esp::parameter(esp::ones({3, 7}), "w"), b = esp::parameter(esp::ones({7}), "b"),
                      v = esp::parameter(esp::ones({7, 2}), "v");
  const esp::Variable loss = esp::mean(esp::square(esp::matmul(esp::tanh(esp::matmul(x, w) + b), v)));
  const optim::Adam adam(0.1);
  const esp::Executor executor =
      loss.get_executor({.mode = esp::Mode::training, .optimizer = adam, .gradient_bucket = true});
  const Variables parameters{w, b, v};
  const auto plan = plan_with_bucket(loss, parameters);
  const auto address = [](const esp::Variable& leaf) {
    return static_cast<const char*>(leaf.node()->outputs[0].value.address());
  };
  for (size_t k = 0; k < 3; ++k) {
    const int64_t offset = plan->memory.buckets.at(0).members[k].offset;
    BOOST_TEST(address(parameters[k]) - address(w) == offset);
    for (const auto& [name, state] : adam.state_of(parameters[k]))
      for (const auto& [first_name, first] : adam.state_of(w))
        if (name == first_name && state.shape() == parameters[k].shape())
          BOOST_TEST(address(state) - address(first) == offset, name);
  }
  BOOST_TEST(executor.plan().str().find("gradients: %") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(parameters_that_share_a_gradient_each_have_one_in_the_bucket) {
  // The gradients of a and b are one node. Eagerly, by plans, and by plans with a bucket they train alike.
  std::vector<std::vector<esp::Tensor>> after;
  for (const int way : {0, 1, 2}) {
    const esp::Variable a = esp::parameter(numbers({4, 4}, -1, 1, 1), "a"),
                        b = esp::parameter(numbers({4, 4}, -1, 1, 2), "b");
    const auto loss = [&] { return esp::sum(esp::square(a + b)); };
    const optim::Adam rule({.lr = 0.1, .clip_norm = 0.5});
    if (way == 0) {
      for (int step = 0; step < 3; ++step) loss().update(rule);
    } else {
      const esp::Executor executor = loss().get_executor({.optimizer = rule, .gradient_bucket = way == 2});
      executor.execute({.epochs = 3, .progress = false});
      if (way == 2) {
        const std::string text = executor.plan().str();
        BOOST_TEST(text.find("of a\n") != std::string::npos, text);
        BOOST_TEST(text.find("of b  (copied)\n") != std::string::npos, text);
      }
    }
    after.push_back({a.value().clone(), b.value().clone()});
    for (size_t i = 0; i < 2; ++i) BOOST_TEST(difference(after[0][i], after.back()[i]) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(steps_allocate_nothing) {
  const esp::data::Distributor feed({numbers({64, 8})}, {.batch_size = 16});
  const esp::Variable w = esp::parameter(numbers({8, 8}));
  const esp::Variable loss = esp::mean(esp::square(esp::matmul(feed.get_output_graphs()[0], w)));
  const esp::Executor executor =
      loss.get_executor({.mode = esp::Mode::training, .optimizer = optim::Adam(0.1)});
  executor.execute({.epochs = 2, .progress = false});
  const esp::MemoryStats before = esp::memory_stats();
  executor.execute({.epochs = 20, .progress = false});
  BOOST_TEST(esp::memory_stats().live_bytes == before.live_bytes);
  BOOST_TEST(esp::memory_stats().allocations - before.allocations < 20);  // buffers of the batches, once
}

BOOST_AUTO_TEST_SUITE_END()
