// Deferred evaluation: nodes wait, alike ones are computed as one, and all equals eager evaluation.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>
#include <random>
#include <thread>

#include "deferred_trees.h"
#include "espalier/core/deferred/deferred.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/nn/cells.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/module.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"

namespace esp = espalier;
using namespace espalier::testing;

BOOST_AUTO_TEST_SUITE(deferred)

BOOST_AUTO_TEST_CASE(nodes_wait_until_a_value_is_needed) {
  const esp::Variable x = esp::parameter(esp::tensor({1.0f, 2.0f}));
  const esp::Deferred waits;
  const esp::Variable y = esp::exp(x) + 1.0;
  BOOST_TEST(y.node()->waits);
  BOOST_TEST(!y.node()->has_value());
  check_near(elements(y), {std::exp(1.0) + 1, std::exp(2.0) + 1});
  BOOST_TEST(!y.node()->waits);
}

BOOST_AUTO_TEST_CASE(trees_are_batched_and_equal_eager_ones) {
  std::mt19937 random(1);
  TreeNet net;
  std::vector<std::unique_ptr<Tree>> forest;
  for (int n = 1; n <= 24; ++n) forest.push_back(random_tree(n, random));
  (void)loss_of(net, forest);  // creates the parameters
  for (const auto policy : {esp::BatchPolicy::agenda, esp::BatchPolicy::depth}) {
    check_equal_to_eager(net, [&] { return loss_of(net, forest); }, {.policy = policy});
    BOOST_TEST(esp::last_evaluation().nodes_computed > 1000);
    BOOST_TEST(esp::last_evaluation().kernels_run * 4 < esp::last_evaluation().nodes_computed);
  }
}

BOOST_AUTO_TEST_CASE(what_steps_add_to_a_loss_is_one_batch_and_sequences_that_go_on_are_views) {
  const esp::Variable w = esp::parameter(esp::randn({3, 3})), v = esp::parameter(esp::randn({3, 1}));
  const auto gathered_by = [](std::string_view op) {
    int64_t inputs = 0, batches = 0;
    for (const auto& batch : esp::last_evaluation().batches) {
      if (batch.op != op) continue;
      inputs += batch.gathered;
      ++batches;
    }
    return std::pair(batches, inputs);
  };
  const esp::Deferred waits;
  std::vector<esp::Variable> losses;
  for (const int64_t length : {3, 7, 2, 5}) {
    esp::Variable h = esp::tanh(esp::variable(esp::randn({1, 3})));
    for (int64_t t = 0; t < length; ++t) {
      h = esp::sigmoid(esp::matmul(h, w));
      losses.push_back(esp::square(esp::matmul(h, v)));
    }
  }
  (void)esp::sum(esp::stack(losses)).item();
  BOOST_TEST(gathered_by("square").first == 1);
  // All steps of h · w and one of h · v: the last alone reads rows of several batches.
  BOOST_TEST(gathered_by("matmul").first == 8);
  BOOST_TEST(gathered_by("matmul").second == 1);
}

BOOST_AUTO_TEST_CASE(a_new_parameter_where_another_was_is_of_another_kind) {
  const esp::Deferred waits;
  const auto sum_of = [](int64_t width) {
    const esp::Variable w = esp::parameter(esp::ones({width}, esp::float64));
    std::vector<esp::Variable> sums;
    for (const double x : {1.0, 2.0}) {
      sums.push_back(esp::sum(esp::exp(esp::variable(esp::full({1}, x, esp::float64)) * w)));
      sums.push_back(esp::sum(esp::exp(esp::variable(esp::full({8}, x, esp::float64)))));
    }
    return esp::sum(esp::stack(sums)).item();
  };
  for (const int64_t width : {8, 4, 8, 2})
    BOOST_TEST(sum_of(width) == static_cast<double>(width + 8) * (std::exp(1.0) + std::exp(2.0)),
               boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(later_outputs_of_an_evaluation_before_are_read_where_they_are) {
  const esp::nn::LSTMCell cell(4);
  const esp::Deferred waits;
  std::vector<esp::nn::LSTMState> states;
  for (int i = 0; i < 4; ++i) states.push_back(cell(esp::randn({1, 3})));
  const auto total = [&] {
    std::vector<esp::Variable> sums;
    for (const auto& state : states) sums.push_back(esp::sum(state.h) + esp::sum(state.c));
    return esp::sum(esp::stack(sums)).item();
  };
  (void)total();
  const esp::Variable x = esp::ones({1, 3});
  for (auto& state : states) state = cell(x, state);
  (void)total();
  const auto& batches = esp::last_evaluation().batches;
  BOOST_TEST(std::ranges::count_if(batches, [](const auto& batch) {
               return batch.op == "memory_cell" && batch.gathered == 0;
             }) == 1);
}

BOOST_AUTO_TEST_CASE(a_structure_is_planned_once) {
  std::mt19937 random(2);
  TreeNet net;
  std::vector<std::unique_ptr<Tree>> forest;
  for (int n = 1; n <= 6; ++n) forest.push_back(random_tree(n, random));
  (void)loss_of(net, forest);
  const esp::Deferred waits;
  (void)loss_of(net, forest).item();
  BOOST_TEST(!esp::last_evaluation().schedule_known);
  for (auto& tree : forest) tree->word = (tree->word + 1) % 30;  // other data, the same structure
  (void)loss_of(net, forest).item();
  BOOST_TEST(esp::last_evaluation().schedule_known);
  forest.push_back(random_tree(7, random));
  (void)loss_of(net, forest).item();
  BOOST_TEST(!esp::last_evaluation().schedule_known);
}

BOOST_AUTO_TEST_CASE(structures_that_take_turns_are_planned_once) {
  std::mt19937 random(9);
  TreeNet net;
  std::vector<std::vector<std::unique_ptr<Tree>>> forests(3);
  for (auto& forest : forests)
    for (int n = 2; n <= 5; ++n) forest.push_back(random_tree(n, random));
  std::vector<double> eager;
  for (auto& forest : forests) eager.push_back(loss_of(net, forest).item());
  const esp::Deferred waits;
  for (int round = 0; round < 3; ++round)
    for (size_t i = 0; i < forests.size(); ++i) {
      BOOST_TEST(std::abs(loss_of(net, forests[i]).item() - eager[i]) < 1e-4);
      BOOST_TEST(esp::last_evaluation().schedule_known == (round > 0));
    }
}

BOOST_AUTO_TEST_CASE(what_nothing_reads_any_more_is_not_computed) {
  const esp::Variable w = esp::parameter(esp::tensor({1.0f, 2.0f}));
  const esp::Deferred waits;
  for (int round = 0; round < 2; ++round) {
    const esp::Variable first = esp::exp(w);
    {
      const esp::Variable unread = esp::sin(esp::cos(w * 3.0));
      const esp::Variable refused =
          esp::gather(w, esp::tensor_from(std::vector<int64_t>{7}, {1}), 0);  // would throw
    }
    const esp::Variable last = esp::log(first) + w;
    check_near(elements(last), {2, 4});
    BOOST_TEST(esp::last_evaluation().nodes_computed == 3);
    BOOST_TEST(esp::last_evaluation().schedule_known == (round > 0));
  }
  (void)esp::exp(w);  // alone, and unread: nothing is evaluated
  check_near(elements(w + w), {2, 4});
  BOOST_TEST(esp::last_evaluation().nodes_computed == 1);
  // As many as make the list of what waits shorter.
  const esp::Variable held = esp::exp(w);
  esp::Variable x = w;
  for (int i = 0; i < 20000; ++i) x = w + 1.0;
  check_near(elements(held + x), {std::exp(1.0) + 2, std::exp(2.0) + 3});
  BOOST_TEST(esp::last_evaluation().nodes_computed == 3);
}

BOOST_AUTO_TEST_CASE(a_constant_that_is_written_while_nodes_wait_is_read_as_it_is_then) {
  const esp::Variable w = esp::parameter(esp::tensor({1.0f, 2.0f}));
  esp::Tensor written = esp::full({}, 2);
  const esp::Tensor other = esp::full({}, 2);
  const esp::Deferred waits;
  const esp::Variable a = w * esp::Variable(written), b = w * esp::Variable(other);
  written.span<float>()[0] = 5;
  check_near(elements(a), {5, 10});
  check_near(elements(b), {2, 4});
}

BOOST_AUTO_TEST_CASE(nodes_that_another_thread_computes_meanwhile_are_not_computed_again) {
  const esp::Variable w = esp::parameter(esp::tensor({1.0f, 2.0f}));
  const esp::Deferred waits;
  const esp::Variable a = esp::exp(w), b = a + w, c = b * 2.0;
  std::thread([&] { (void)b.value(); }).join();
  BOOST_TEST(b.node()->has_value());
  check_near(elements(c), {2 * std::exp(1.0) + 2, 2 * std::exp(2.0) + 4});
  BOOST_TEST(esp::last_evaluation().nodes_computed == 1);
  // An assignment by another thread is an error of what read the leaf as it was.
  const esp::Variable d = esp::exp(w), e = esp::exp(esp::tensor({1.0f, 2.0f}));
  std::thread([&] { esp::set_value(w, esp::tensor({3.0f, 4.0f})); }).join();
  BOOST_CHECK_EXCEPTION(d.value(), esp::Error, [](const esp::Error& error) {
    return std::string(error.what()).find("updated") != std::string::npos;
  });
  check_near(elements(e), {std::exp(1.0), std::exp(2.0)});
}

BOOST_AUTO_TEST_CASE(rows_that_another_thread_computes_keep_their_places) {
  const esp::Variable w = esp::parameter(esp::tensor({1.0, 2.0}, esp::float64));
  const esp::Deferred waits;
  const esp::Variable other = esp::tanh(w) + esp::tanh(w * 0.5);  // before the batch, so that it moves on
  const esp::Variable b1 = esp::exp(w * 1.0), b2 = esp::exp(w * 2.0), s = b1 + b2, c = b2 * 2.0;
  std::thread([&] { (void)s.value(); }).join();
  check_near(elements(c), {2 * std::exp(2.0), 2 * std::exp(4.0)}, 1e-12);
  check_near(elements(esp::sum(s).gradient(w)),
             {std::exp(1.0) + 2 * std::exp(2.0), std::exp(2.0) + 2 * std::exp(4.0)}, 1e-12);
  check_near(elements(other), {std::tanh(1.0) + std::tanh(0.5), std::tanh(2.0) + std::tanh(1.0)}, 1e-12);
}

BOOST_AUTO_TEST_CASE(a_stack_is_one_node_and_stacks_are_joined) {
  const esp::Variable w = esp::parameter(esp::tensor({0.5, -1.0}, esp::float64));
  const auto loss = [&] {
    std::vector<esp::Variable> pairs;
    for (int i = 0; i < 5; ++i) {
      const esp::Variable x = w * static_cast<double>(i);
      pairs.push_back(esp::stack({esp::sum(x), esp::sum(x * x)}));  // scalars
      pairs.push_back(esp::sum(esp::stack({x, x + w}, 1), 0));
    }
    return esp::sum(esp::square(esp::stack(pairs)));
  };
  const esp::Variable eager = loss();
  const std::vector<double> gradient = elements(eager.gradient(w));
  const esp::Deferred waits;
  const esp::Variable deferred = loss();
  check_near(elements(deferred), elements(eager), 1e-12);
  int64_t nodes = 0, batches = 0;
  for (const auto& batch : esp::last_evaluation().batches) {
    BOOST_TEST(batch.op != "unsqueeze");
    if (batch.op != "stack") continue;
    nodes += batch.nodes;
    ++batches;
  }
  BOOST_TEST(nodes == 11);
  BOOST_TEST(batches == 3);
  check_near(elements(deferred.gradient(w)), gradient, 1e-12);
}

BOOST_AUTO_TEST_CASE(training_takes_the_same_steps) {
  const auto train = [](bool deferred) {
    esp::seed(5);
    std::mt19937 random(3);
    TreeNet net;
    std::vector<double> losses;
    const esp::optim::Sgd sgd(0.1);
    for (int step = 0; step < 4; ++step) {
      std::vector<std::unique_ptr<Tree>> forest;
      for (int n = 0; n < 5; ++n) forest.push_back(random_tree(1 + static_cast<int>(random() % 9), random));
      std::optional<esp::Deferred> waits;
      if (deferred) waits.emplace();
      const esp::Variable loss = loss_of(net, forest);
      losses.push_back(loss.item());
      loss.backward().update(sgd);
    }
    return losses;
  };
  check_near(train(true), train(false), 1e-4);
}

BOOST_AUTO_TEST_CASE(gradients_of_intermediates_and_of_second_order) {
  const auto run = [](bool deferred) {
    std::vector<double> result;
    const esp::Variable w = esp::parameter(esp::tensor({{0.3, -0.2}, {0.5, 0.7}}, esp::float64));
    std::optional<esp::Deferred> waits;
    if (deferred) waits.emplace();
    std::vector<esp::Variable> hidden, terms;
    for (int i = 0; i < 3; ++i) {
      const esp::Variable x = esp::tensor({{0.1 * i, 1.0}}, esp::float64);
      hidden.push_back(esp::tanh(esp::matmul(x, w)));
      terms.push_back(esp::sum(esp::square(hidden.back())));
    }
    const esp::Variable loss = esp::sum(esp::stack(terms));
    for (const esp::Variable& h : hidden)
      for (const double x : elements(loss.gradient(h))) result.push_back(x);
    const esp::Variable g = loss.gradient(w);
    for (const double x : elements(esp::sum(esp::square(g)).gradient(w))) result.push_back(x);
    return result;
  };
  check_near(run(true), run(false), 1e-12);
}

BOOST_AUTO_TEST_CASE(what_is_made_afterwards_uses_what_was_computed) {
  const auto run = [](bool deferred) {
    const esp::Variable w = esp::parameter(esp::tensor({1.0, 2.0, 3.0}, esp::float64));
    esp::Variable a, b, c;
    {
      std::optional<esp::Deferred> waits;
      if (deferred) waits.emplace();
      a = esp::exp(w * 0.1);
      b = esp::sin(w * 0.2);
      c = esp::sin(a + b);
      (void)a.value();  // computes all
      c = c * a;        // waits on
    }
    const esp::Variable loss = esp::sum(c * b);  // eager
    return std::pair(elements(loss), elements(loss.backward().gradient(w)));
  };
  check_near(run(true).first, run(false).first, 1e-12);
  check_near(run(true).second, run(false).second, 1e-12);
}

BOOST_AUTO_TEST_CASE(a_leaf_is_not_assigned_under_what_waits) {
  const esp::Variable w = esp::parameter(esp::tensor({1.0f, 2.0f}));
  const esp::Deferred waits;
  const esp::Variable y = w * 3.0;
  esp::set_value(w, esp::tensor({5.0f, 6.0f}));
  check_near(elements(y), {3, 6});
}

BOOST_AUTO_TEST_CASE(random_numbers_are_drawn_in_the_order_of_writing) {
  const esp::Variable w = esp::parameter(esp::ones({4, 3}));
  const auto run = [&](bool deferred) {
    esp::seed(11);
    std::optional<esp::Deferred> waits;
    if (deferred) waits.emplace();
    std::vector<esp::Variable> parts;
    for (int i = 0; i < 3; ++i) parts.push_back(esp::dropout(w * 2.0, 0.5));
    return elements(esp::concat(parts, 0));
  };
  check_near(run(true), run(false));
}

BOOST_AUTO_TEST_CASE(an_error_has_the_line_of_its_node) {
  const esp::Variable table = esp::parameter(esp::randn({4, 2}));
  const auto rows = [&](int64_t i) {
    return esp::gather(table, esp::tensor_from(std::vector<int64_t>{i}, {1}), 0);
  };
  const esp::Deferred waits;
  const esp::Variable good = rows(1) * 2.0;
  const int line = __LINE__ + 1;
  const esp::Variable bad = esp::gather(table, esp::tensor_from(std::vector<int64_t>{9}, {1}), 0) * 2.0;
  BOOST_CHECK_EXCEPTION(bad.value(), esp::IndexError, [&](const esp::Error& e) {
    return std::string(e.what()).find(":" + std::to_string(line)) != std::string::npos;
  });
  BOOST_TEST(good.value().elements() == 2);  // what does not depend on it has its value
}

BOOST_AUTO_TEST_CASE(without_gradients_no_tree_is_kept) {
  const esp::Variable w = esp::parameter(esp::randn({3, 3}));
  const esp::NoGrad none;
  const esp::Deferred waits;
  const esp::Variable y = esp::tanh(esp::matmul(esp::randn({1, 3}), w));
  BOOST_TEST(y.value().elements() == 3);
  BOOST_TEST(y.node()->is_leaf());
}

BOOST_AUTO_TEST_CASE(an_error_leaves_no_tree_of_what_was_computed) {
  const esp::Variable w = esp::parameter(esp::ones({4, 2}));
  const esp::NoGrad none;
  const esp::Deferred waits;
  const esp::Variable good = esp::exp(w) * 2.0;
  const esp::Variable bad =
      esp::gather(esp::exp(good), esp::tensor_from(std::vector<int64_t>{9}, {1}), 0) * 2.0;
  BOOST_CHECK_THROW(bad.value(), esp::IndexError);
  BOOST_TEST(good.node()->is_leaf());
  BOOST_TEST(good.node()->has_value());
}

BOOST_AUTO_TEST_CASE(threads_share_parameters) {
  std::mt19937 random(6);
  TreeNet net;
  std::vector<std::unique_ptr<Tree>> forest;
  for (int n = 1; n <= 8; ++n) forest.push_back(random_tree(n, random));
  const double eager = loss_of(net, forest).item();
  std::vector<double> results(3);
  std::vector<std::thread> threads;
  for (double& result : results)
    threads.emplace_back([&] {
      const esp::Deferred waits;
      for (int i = 0; i < 3; ++i) {
        const esp::Variable loss = loss_of(net, forest);
        result = loss.item();
        loss.backward();
      }
      (void)loss_of(net, forest);  // still waits when the thread ends
    });
  for (std::thread& thread : threads) thread.join();
  for (const double result : results) BOOST_TEST(std::abs(result - eager) < 1e-4 * std::abs(eager));
}

BOOST_AUTO_TEST_CASE(memory_stays_flat_over_trees_of_many_forms) {
  std::mt19937 random(4);
  TreeNet net;
  const esp::optim::Sgd sgd(0.001);
  const esp::Deferred waits;
  int64_t early = 0;
  for (int i = 0; i < 600; ++i) {
    std::vector<std::unique_ptr<Tree>> forest;
    forest.push_back(random_tree(1 + static_cast<int>(random() % 12), random));
    loss_of(net, forest).backward().update(sgd);
    if (i == 100) early = esp::memory_stats().live_bytes;
  }
  BOOST_TEST(esp::memory_stats().live_bytes <= early + (1 << 16));
}

BOOST_AUTO_TEST_SUITE_END()
