// The values that a tree keeps in memory, and their release.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <set>

#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/core/with_assignment.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

int64_t live() { return esp::memory_stats().live_bytes; }
constexpr int64_t kilobyte = 1024, megabyte = 1024 * kilobyte;
const esp::Shape large{512, 512};  // one megabyte of float32

}  // namespace

BOOST_AUTO_TEST_SUITE(release)

BOOST_AUTO_TEST_CASE(unneeded_intermediate_values_are_released) {
  const esp::Variable x = esp::variable(esp::ones(large));
  const int64_t before = live();
  esp::Variable y = x + 1;
  for (int i = 0; i < 10; ++i) y = y + 1;  // the gradient of a sum reads no values
  BOOST_TEST(live() - before < 2 * megabyte);
  BOOST_TEST(y.gradient(x).value().at<float>({3, 3}) == 1);

  esp::Variable kept = x * 2;
  for (int i = 0; i < 10; ++i) kept = esp::square(kept * 0.5);
  BOOST_TEST(live() - before > 10 * megabyte);  // squares read their inputs
  kept = {};
  BOOST_TEST(live() - before < 3 * megabyte);
}

BOOST_AUTO_TEST_CASE(a_handle_keeps_a_value) {
  const esp::Variable x = esp::ones(large);
  const esp::Variable h = x + 1;
  const esp::Variable y = h + 1;
  const esp::Tensor seen = h.value();
  BOOST_TEST(seen.at<float>({0, 0}) == 2);
  BOOST_TEST(h.node()->has_value());
  BOOST_TEST(y.value().at<float>({0, 0}) == 3);
}

BOOST_AUTO_TEST_CASE(operands_that_end_give_their_buffer_and_nothing_else) {
  const esp::Variable x = esp::variable(numbers({100}, 0.5, 1));
  // A view, a tensor, a second handle and a gradient rule each keep the operand's elements.
  esp::Variable h = x * 2;
  const esp::Variable view = esp::reshape(h, {10, 10});
  const esp::Variable y = std::move(h) + 1;
  BOOST_TEST(difference((x * 2).value(), esp::reshape(view, {100}).value()) == 0);
  esp::Variable i = x * 3;
  const esp::Tensor held = i.value();
  const esp::Variable z = -std::move(i);
  BOOST_TEST(difference((x * 3).value(), held) == 0);
  esp::Variable j = x * 4;
  const esp::Variable second = j, w = esp::exp(std::move(j));
  BOOST_TEST(difference((x * 4).value(), second.value()) == 0);
  // Rules that read released values: y = (2x)² reads 2x, y = exp(2x) reads itself.
  BOOST_TEST(difference((x * 8).value(), esp::square(x * 2).gradient(x).value()) < 1e-15);
  BOOST_TEST(difference((esp::exp(x * 2) * 2).value(), esp::exp(x * 2).gradient(x).value()) < 1e-15);
  BOOST_TEST(difference((esp::exp(x * 2) * 2).value(), (esp::exp(x * 2) + 1).gradient(x).value()) < 1e-15);
  BOOST_TEST(difference((esp::exp(x * 2) * 4).value(),
                        (esp::exp(x * 2) + 1).gradient(x).gradient(x).value()) < 1e-14);
}

BOOST_AUTO_TEST_CASE(a_training_loop_leaks_nothing) {
  esp::seed(3);
  esp::nn::Dense first(32), second(4);
  const esp::Tensor x = esp::randn({64, 16}), y = esp::randn({64, 4});
  const esp::optim::Adam adam(0.01);
  const auto step = [&] {
    const esp::Variable loss = esp::nn::MeanSquared()(second(esp::relu(first(x))), y);
    loss.backward();
    loss.update(adam);
  };
  step();
  const int64_t before = live();
  for (int i = 0; i < 20; ++i) step();
  BOOST_TEST(live() == before);
}

BOOST_AUTO_TEST_CASE(a_state_knows_no_former_value_that_nothing_reads) {
  const esp::Variable w = esp::parameter(esp::ones({3})), s = esp::state(esp::ones({3}));
  const esp::Variable held = esp::with_assignment(w, s, s * 0.5f);
  for (int i = 0; i < 100; ++i) (void)esp::with_assignment(w, s, s * 0.5f);
  BOOST_TEST(s.node()->rare().former.size() <= 2u);  // that of `held`, and the last one
}

BOOST_AUTO_TEST_CASE(nothing_is_left_of_a_tree_without_handles) {
  const int64_t before = live();
  {
    const esp::Variable x = esp::variable(numbers({100, 10}));
    const esp::Variable y = esp::sum(esp::softmax(esp::tanh(x) * x));
    const esp::Variable g = y.gradient(x);
    (void)g.gradient(x).gradient(x).value();
    y.backward();
    const esp::Variable w = esp::parameter(numbers({10}));
    const esp::Variable loss = esp::sum(x * w);
    loss.update(esp::optim::Sgd(0.1));
    loss.backward({.clear_buffers = true});
  }
  BOOST_TEST(live() == before);
}

BOOST_AUTO_TEST_CASE(clear_buffers_frees_the_tree) {
  const esp::Variable w = esp::parameter(esp::ones(large));
  const int64_t before = live();
  esp::Variable h = w;
  for (int i = 0; i < 8; ++i) h = esp::square(h * 0.5);
  const esp::Variable loss = esp::sum(h);
  h = {};
  BOOST_TEST(live() - before > 7 * megabyte);
  loss.backward({.clear_buffers = true});
  BOOST_TEST(live() - before < 2 * megabyte);  // the gradient of w
}

BOOST_AUTO_TEST_CASE(clear_buffers_keeps_what_is_held) {
  const esp::Variable w = esp::parameter(esp::ones(large));
  const int64_t before = live();
  esp::Variable h = w, held;
  for (int i = 0; i < 8; ++i) {
    h = esp::square(h * 0.5);
    if (i == 1) held = h;
  }
  const esp::Variable loss = esp::sum(h);
  h = {};
  BOOST_TEST(live() - before > 12 * megabyte);
  loss.backward({.clear_buffers = true});
  BOOST_TEST(live() - before < 6 * megabyte);  // the gradient of w, `held`, and what is behind it
  BOOST_REQUIRE(held.node()->has_value());
  BOOST_TEST(held.value().at<float>({3, 3}) == 0x1p-6f);
  BOOST_TEST(held.depth() == 4);
  BOOST_TEST(held.gradient(w).value().at<float>({3, 3}) == 0x1p-4f);
}

BOOST_AUTO_TEST_CASE(gradients_hold_no_more_than_they_read) {
  const esp::Variable w = esp::parameter(esp::ones(large));
  const int64_t before = live();
  esp::Variable h = w;
  for (int i = 0; i < 8; ++i) h = h + 1;
  const esp::Variable loss = esp::mean(h);
  h = {};
  loss.backward();
  BOOST_TEST(live() - before < 3 * megabyte);
}

BOOST_AUTO_TEST_CASE(a_tree_that_a_plan_trains_keeps_what_was_asked_of_it) {
  const esp::Variable p = esp::parameter(numbers(large, -1, 1, 1).to(esp::float32)),
                      c = esp::parameter(numbers(large, -1, 1, 2).to(esp::float32));
  const int64_t before = live();
  const esp::Variable held = esp::tanh(p * c);
  const esp::Variable other = esp::sum(esp::square(esp::sigmoid(held)));  // shares values with h
  esp::Variable h = held;
  for (int i = 0; i < 5; ++i) h = esp::tanh(h);
  const esp::Variable loss = esp::sum(h * esp::sigmoid(held));
  h = {};
  BOOST_TEST(live() - before > 7 * megabyte);  // the rules of tanh, sigmoid and products read values
  const esp::Tensor seen = held.value().clone();
  const double was = loss.item();

  const int64_t kept = live();
  esp::reset_peak_memory();
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.1)});
  const int64_t leaves = 2 * megabyte;
  BOOST_TEST(kept - live() > 6 * megabyte - leaves - executor.plan().arena_bytes());
  // Leaves exist twice while they are copied.
  BOOST_TEST(esp::memory_stats().peak_bytes - before < kept - before + kilobyte);

  // No leaf has changed yet: released values are computed again.
  BOOST_TEST(difference(loss.gradient(c).value(),
                        (esp::sum(esp::tanh(esp::tanh(esp::tanh(esp::tanh(esp::tanh(esp::tanh(p * c)))))) *
                                  esp::sigmoid(esp::tanh(p * c))))
                            .gradient(c)
                            .value()) < 1e-5);
  const esp::Tensor asked = loss.gradient(p).value().clone();
  BOOST_TEST(difference(held.value(), seen) == 0);

  executor.execute({.progress = false});
  BOOST_TEST(difference(held.value(), seen) == 0);  // eager values are those before the step
  BOOST_TEST(loss.item() == was);
  BOOST_TEST(difference(loss.gradient(p).value(), asked) == 0);
  BOOST_TEST(executor.value().item() == was, boost::test_tools::tolerance(1e-5));
  BOOST_TEST(other.gradient(held).value().defined());  // the values that its rules read were kept
  // A new tree reads the current parameters.
  BOOST_TEST(difference(esp::tanh(p * c).value(), seen) > 1e-3);
}

BOOST_AUTO_TEST_CASE(values_released_for_a_plan_are_not_computed_from_other_parameters) {
  const esp::Variable p = esp::parameter(esp::tensor({1.0f, 2.0f}));
  const esp::Variable loss = esp::sum(esp::tanh(p * 2.0f));
  const auto& tanh = loss.node()->inputs[0];
  BOOST_TEST(tanh.node()->has_value());
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.1)});
  BOOST_TEST(!tanh.node()->has_value());
  const esp::Variable other = esp::sum(esp::tanh(p * 3.0f));
  (void)other.get_executor({.mode = esp::Mode::inference});
  BOOST_TEST(!other.node()->inputs[0].node()->has_value());
  BOOST_TEST(other.gradient(p).value().defined());
  BOOST_TEST(tanh.variable().value().at<float>({0}) == std::tanh(2.0f), boost::test_tools::tolerance(1e-6f));
  (void)loss.get_executor({.optimizer = esp::optim::Sgd(0.1)});
  executor.execute({.progress = false});
  BOOST_TEST(!tanh.node()->has_value());
  BOOST_CHECK_THROW((void)tanh.variable().value(), esp::Error);
  BOOST_CHECK_THROW((void)loss.gradient(p), esp::Error);
}

BOOST_AUTO_TEST_CASE(a_plan_releases_nothing_that_others_hold) {
  const esp::Variable p = esp::parameter(esp::tensor({1.0f, 2.0f}));
  const esp::Variable held = esp::tanh(p + 1.0f);
  esp::Variable shared = esp::tanh(p + 2.0f);
  const auto* node = shared.node();
  const esp::Variable other = esp::sum(esp::square(shared));  // its rule reads an operand of both
  const esp::Variable loss = esp::sum(held * shared);
  shared = {};
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.1)});
  BOOST_TEST(held.node()->has_value());
  BOOST_TEST(node->has_value());
  executor.execute({.progress = false});
  BOOST_TEST(held.value().at<float>({0}) == std::tanh(2.0f), boost::test_tools::tolerance(1e-6f));
  const float t = std::tanh(3.0f);
  BOOST_TEST(other.gradient(p).value().at<float>({0}) == 2 * t * (1 - t * t),
             boost::test_tools::tolerance(1e-4f));
}

BOOST_AUTO_TEST_CASE(what_is_computed_again_leaves_nothing_between) {
  const esp::Variable x = esp::variable(esp::ones(large));
  const esp::Variable y = ((x + 1) + 2) + 3;
  const esp::Variable middle = y.node()->inputs[0].variable();
  const esp::Edge& first = middle.node()->inputs[0];
  BOOST_TEST(!first.node()->has_value());
  BOOST_TEST(middle.value().at<float>({0, 0}) == 4);
  BOOST_TEST(!first.node()->has_value());
}

BOOST_AUTO_TEST_CASE(operands_that_rules_read_outlive_a_change_of_the_leaf) {
  const esp::Variable x = esp::variable(esp::full({3}, 2));
  esp::Variable h = x + 1;
  const esp::Variable y = esp::sum(esp::square(std::move(h)));
  esp::set_value(x, esp::zeros({3}));
  BOOST_TEST(y.gradient(x).value().at<float>({0}) == 6);  // at x = 2
}

BOOST_AUTO_TEST_CASE(a_deep_chain_needs_no_stack) {
  const int64_t before = live();
  {
    const esp::Variable x = esp::variable({1.0f});
    esp::Variable y = x;
    for (int i = 0; i < 100'000; ++i) y = y + x;
    BOOST_TEST(y.item() == 100'001);
    BOOST_TEST(y.depth() == 100'000);
    BOOST_TEST(y.gradient(x).item() == 100'001);
    esp::Variable z = x;
    for (int i = 0; i < 100'000; ++i) z = z * 1.0;
    z.backward();
    BOOST_TEST(z.gradient(x).item() == 1);
    BOOST_TEST(z.gradient(x).depth() >= 100'000);
    z.disconnect();
  }
  BOOST_TEST(live() == before);
}

BOOST_AUTO_TEST_CASE(random_nodes_are_computed_again_with_the_same_numbers) {
  esp::seed(4);
  const esp::Variable x = esp::variable(esp::ones({1000}));
  const esp::Variable y = esp::dropout(x, 0.5) + 1.0;  // the product is released
  const esp::Variable product = y.node()->inputs[0].variable();
  BOOST_TEST(!product.node()->has_value());
  BOOST_TEST(difference((product + 1.0).value(), y.value()) == 0);
}

BOOST_AUTO_TEST_CASE(random_nodes_of_a_feed_show_one_mask_at_a_step) {
  esp::seed(4);
  const esp::data::Distributor feed({esp::ones({3, 1000})}, {.batch_size = 1});
  for (int steps = 1; steps <= 3; ++steps) {
    esp::Variable first, second;
    {
      const esp::Variable h = esp::dropout(feed.get_output_graphs()[0] + 0.5, 0.5);  // released in between
      first = esp::sum(h), second = esp::sum(h * 2);
    }
    std::set<double> shown;
    for (int step = 0; step < steps; ++step) shown.insert(first.forward().item());
    BOOST_TEST(shown.size() == static_cast<size_t>(steps));  // another mask at each step
    BOOST_TEST(second.item() == 2 * first.item());
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_intermediate_variables_are_computed_once) {
  const esp::Variable w = esp::variable(numbers({8}));
  const auto kernels = [](const esp::Variable& x) {
    const esp::Variable y = esp::sum(esp::sin(esp::exp(esp::sin(x))));
    const int64_t before = esp::kernels_run_here();
    (void)y.gradient(x).value();
    return esp::kernels_run_here() - before;
  };
  BOOST_TEST(kernels(w * 2.0) == kernels(w));
}

BOOST_AUTO_TEST_SUITE_END()
