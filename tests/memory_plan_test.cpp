// The memory plan: values are not overwritten before their last reader, and little memory is wasted.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <random>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "many_cases.h"
#include "memory_plan_checks.h"
#include "plan_steps.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// Stores the old value of a parameter and its transpose.
optim::Optimizer remembering() {
  struct Rule : optim::UpdateRule {
    std::string_view name() const override { return "Remembering"; }
    void update(optim::ParameterUpdate& step) const override {
      const esp::Variable& p = step.parameter();
      step.assign(p, p - step.gradient() * 0.1);
      step.assign(step.state("plain"), p);
      step.assign(step.state("turned"), esp::transpose(p));
      step.assign(step.state("sum"), step.state("sum") + esp::tanh(p));
    }
  };
  return {std::make_shared<Rule>(), {}};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_plan)

BOOST_AUTO_TEST_CASE(best_fit) {
  // Three steps; the second buffer can reuse the first one's place.
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
  for (unsigned seed = 0; seed < many_cases(90); ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      MatrixTree tree(seed, [] { return esp::placeholder("x", {4, 4}, esp::float64); });
      const optim::Optimizer rule = seed % 3 ? optim::Optimizer(optim::Adam(0.1)) : remembering();
      std::vector<std::pair<esp::Variable, esp::Variable>> gradients;
      for (const esp::Variable& p : tree.parameters) gradients.emplace_back(p, tree.loss.gradient(p));
      // Results may be a gradient, a parameter, or a view of one.
      Variables results{tree.loss, tree.pool.back()};
      if (seed % 4 == 0) results.push_back(gradients[0].second);
      if (seed % 5 == 0) results.push_back(esp::transpose(tree.parameters[1]));
      if (seed % 7 == 0) results.push_back(tree.parameters[2]);
      const auto updates = rule.build(gradients);
      const int64_t all = esp::compile(step_of(results, updates), {}, {})->memory.arena_bytes;
      using Gradients = std::vector<std::pair<esp::Variable, esp::Variable>>;
      const auto check = [&](const esp::CompileOptions& how) {
        for (const bool bucket : {false, true}) {
          try {
            const auto plan =
                esp::compile(step_of(results, updates, bucket ? gradients : Gradients()), {}, how);
            check_plan(plan->graph, plan->memory);
            // Stored old values share kernels with the loss, which do not read gradients.
            if (seed % 3) check_bucket(*plan, bucket ? tree.parameters : Variables());
            check_buffers(plan->memory.buffers, plan->memory.arena_bytes);
            BOOST_TEST(plan->memory.arena_bytes >= plan->memory.largest_live_bytes);
            BOOST_TEST(plan->memory.arena_bytes <= plan->memory.all_bytes);
            for (const esp::ArenaBuffer& b : plan->memory.buffers) BOOST_TEST(b.offset % 64 == 0);
          } catch (const esp::OutOfMemory&) {
            BOOST_TEST(how.memory_budget > 0);
          }
        }
      };
      check({});
      check({.without = {"in_place"}});
      check({.without = {"simplify", "common_subexpressions"}});
      check({.without = {"fuse_pointwise"}});
      if (seed % 6 == 0) check({.without = {}, .memory_budget = all * 8 / 10});
    }
}

BOOST_AUTO_TEST_CASE(random_trees_train_alike_every_way) {
  for (unsigned seed = 100; seed < 140; ++seed) BOOST_TEST_CONTEXT("seed " << seed) {
      const esp::Tensor data = numbers({4, 4}, -1, 1, seed);
      const auto values = [](const MatrixTree& tree) {
        std::vector<esp::Tensor> list;
        for (const esp::Variable& p : tree.parameters) list.push_back(p.value().clone());
        return list;
      };
      const auto rule = [&] {
        return seed % 2 ? optim::Optimizer(optim::Sgd({.lr = 0.1, .momentum = 0.5}))
                        : optim::Sgd({.lr = 0.1});
      };
      MatrixTree eager(seed, [&] { return esp::Variable(data); });
      const double loss = eager.loss.item();
      eager.loss.update(rule());
      const std::vector<esp::Tensor> after_one = values(eager);

      std::vector<std::vector<esp::Tensor>> after_three;
      for (const std::vector<std::string>& without :
           {std::vector<std::string>{}, {"in_place"}, esp::pass_names()}) {
        MatrixTree tree(seed, [] { return esp::placeholder("x", {4, 4}, esp::float64); });
        const esp::Executor executor =
            tree.loss.get_executor({.mode = esp::Mode::training, .optimizer = rule(), .without = without});
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

BOOST_AUTO_TEST_CASE(batches_are_there_before_the_first_kernel) {
  // Kernels precede the source and must not overwrite its buffer.
  const esp::Variable w = esp::parameter(numbers({16, 16}, -0.2, 0.2, 1), "w");
  const esp::Variable a = esp::matmul(w, w), b = esp::matmul(a, w), c = esp::matmul(b, w);
  const esp::Variable x = esp::placeholder("x", {16, 16}, esp::float64), y = esp::sum(esp::matmul(c, x));
  const esp::Tensor data = numbers({16, 16}, -1, 1, 2);
  for (const std::vector<std::string>& without : {std::vector<std::string>{}, {"in_place"}}) {
    const esp::Tensor planned = y.get_executor({.without = without}).run({{"x", data}});
    BOOST_TEST(difference(planned, esp::sum(esp::matmul(c, data)).value()) < 1e-12);
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
    loss_of(x, y).update(optimizer);  // creates parameters and states
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
  // 168, 56 and 112 bytes, each aligned to 64.
  const std::vector<int64_t> offsets{0, 192, 256};
  for (size_t k = 0; k < 3; ++k) {
    BOOST_TEST(plan->memory.buckets.at(0).members[k].offset == offsets[k]);
    BOOST_TEST(!plan->memory.buckets.at(0).members[k].copied);
  }
  BOOST_TEST(plan->memory.buffers[plan->memory.buckets.at(0).buffer].bytes == 384);
  BOOST_TEST(esp::Plan(plan).str().find("+192 of w\n") != std::string::npos);
  // Without in_place, all gradients are copied.
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
  // The gradients: q for p, p for q, a constant for r, a broadcast number for s, and a view of a kernel for
  // t.
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

BOOST_AUTO_TEST_CASE(a_bucket_of_a_constant_gradient_is_a_bucket) {
  const esp::Variable p = esp::parameter(numbers({4}), "p");
  const auto plan = plan_with_bucket(esp::sum(p), {p});
  check_plan(plan->graph, plan->memory);
  check_bucket(*plan, {p});
}

BOOST_AUTO_TEST_CASE(a_gradient_that_is_a_result_too_is_copied_into_the_bucket) {
  const esp::Variable x = esp::placeholder("x", {5, 3}, esp::float64);
  const esp::Variable w = esp::parameter(numbers({3, 7}), "w"), v = esp::parameter(numbers({7, 2}), "v");
  const esp::Variable loss = esp::mean(esp::square(esp::matmul(esp::tanh(esp::matmul(x, w)), v)));
  const std::vector<std::pair<esp::Variable, esp::Variable>> gradients{{w, loss.gradient(w)},
                                                                       {v, loss.gradient(v)}};
  const auto plan = esp::compile(
      step_of({loss, gradients[0].second}, optim::Adam(0.1).build(gradients), gradients), {}, {});
  check_plan(plan->graph, plan->memory);
  check_bucket(*plan, {w, v});
  BOOST_TEST(plan->memory.buckets.at(0).members[0].copied);
  BOOST_TEST(!plan->memory.buckets.at(0).members[1].copied);
}

BOOST_AUTO_TEST_CASE(parameters_states_and_gradients_lie_alike) {
  const esp::Variable x = esp::placeholder("x", {5, 3});
  const esp::Variable w = esp::parameter(esp::ones({3, 7}), "w"), b = esp::parameter(esp::ones({7}), "b"),
                      v = esp::parameter(esp::ones({7, 2}), "v");
  const esp::Variable loss = esp::mean(esp::square(esp::matmul(esp::tanh(esp::matmul(x, w) + b), v)));
  const optim::Adam adam(0.1);
  const esp::Executor executor =
      esp::internal::make_executor(loss, {.mode = esp::Mode::training, .optimizer = adam}, true);
  (void)executor.run(
      {{"x", esp::ones({5, 3})}});  // from the first step on, the leaves have the memory of the plan
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
  // The gradients of a and b are one node. Eager code, plans, and plans with a bucket train alike.
  std::vector<std::vector<esp::Tensor>> after;
  for (const int way : {0, 1, 2}) {
    const esp::Variable a = esp::parameter(numbers({4, 4}, -1, 1, 1), "a"),
                        b = esp::parameter(numbers({4, 4}, -1, 1, 2), "b");
    const auto loss = [&] { return esp::sum(esp::square(a + b)); };
    const optim::Adam rule({.lr = 0.1, .clip_norm = 0.5});
    if (way == 0) {
      for (int step = 0; step < 3; ++step) loss().update(rule);
    } else {
      const esp::Executor executor = esp::internal::make_executor(loss(), {.optimizer = rule}, way == 2);
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

/// A gradient adds back by indices that a kernel before it has taken, if that is in the plan.
BOOST_AUTO_TEST_CASE(indices_are_refused_once) {
  const Variable table = esp::parameter(numbers({6, 5}, -1, 1, 1), "table"),
                 wide = esp::parameter(numbers({2, 6}, -1, 1, 2), "wide");
  const esp::Tensor rows = esp::tensor({4, 0, 4}, esp::int64),
                    columns = esp::tensor({{1, 3, 3}, {0, 5, 2}}, esp::int64);
  const auto last = [](const Variables& results) {
    esp::Graph graph = esp::freeze(results, {}, {}, false);
    esp::detach_shapes(graph);
    esp::dead_nodes(graph);
    const uint32_t at = esp::last_to_refuse(graph);
    return std::string(graph.nodes[at].op->name());
  };
  const Variable gathered = esp::sum(esp::square(esp::gather(table, rows))),
                 taken = esp::sum(esp::square(esp::take_along_axis(wide, columns, 1)));
  BOOST_TEST(last({gathered, gathered.gradient(table)}) == "gather");
  BOOST_TEST(last({taken, taken.gradient(wide)}) == "take_along_axis");
  // Where negative ones are refused, they have not been before.
  const Variable at = rows, values = numbers({3, 5}), some = esp::gather(table, at);
  BOOST_TEST(last({some, esp::scatter_add_like(values, at, table, 0, "f")}) == "gather");
  BOOST_TEST(last({some, esp::scatter_add_like(values, at, table, 0, "f", false)}) == "scatter_add_like");
  // Those of another axis.
  BOOST_TEST(last({some, esp::scatter_add_like(numbers({6, 3}), at, table, 1, "f")}) == "scatter_add_like");
  // Indices in another shape are the same.
  const Variable reshaped =
      esp::sum(esp::square(esp::take_along_axis(wide, Variable(columns.reshape({6})).reshape({2, 3}), 1)));
  BOOST_TEST(last({reshaped, reshaped.gradient(wide)}) == "take_along_axis");
  // Sums have gradients that no other kernel needs indices for.
  const Variable sum = esp::sum(esp::take_along_axis(wide, columns, 1));
  BOOST_TEST(last({sum.gradient(wide)}) == "add_along_axis_like");
  // Those of another table, of another size.
  const Variable other = esp::sum(esp::gather(esp::parameter(numbers({9, 5}, -1, 1, 3), "other"), rows));
  BOOST_TEST(last({other, esp::sum(esp::gather(table, rows)).gradient(table)}) == "scatter_add_like");
}

/// Kernels of convolutions and of pooling refuse no values, so large gradients end as soon as they are there.
BOOST_AUTO_TEST_CASE(large_updates_of_networks_of_images_are_early) {
  esp::seed(1);
  const esp::nn::Conv2d few(64, {.kernel = 3, .padding = 1}), many(128, {.kernel = 3, .padding = 1});
  const Variable x = esp::placeholder("x", {2, 3, 8, 8});
  const Variable loss = esp::mean(esp::square(many(esp::max_pool(few(x), {.kernel = {{2, 2}}}))));
  const auto plan =
      esp::compile(step_of({loss}, optim::Adam(0.1).build(esp::new_parameter_gradients(loss))), {}, {});
  check_plan(plan->graph, plan->memory);
  std::vector<std::string> order;
  for (const esp::GraphNode& n : plan->graph.nodes) {
    if (n.op->name() == "pool_add_like" || n.op->name() == "conv_kernels") order.emplace_back(n.op->name());
    if (n.tag == esp::Tag::update && !n.op->is_leaf() && !n.op->has_side_effects() &&
        std::ranges::any_of(n.outputs, [](const esp::Spec& spec) { return spec.shape.elements() > 65536; }))
      order.emplace_back("update");
  }
  BOOST_TEST(order == (std::vector<std::string>{"conv_kernels", "update", "pool_add_like", "conv_kernels"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
