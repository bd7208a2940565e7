// Parameters belong to the tree and can be written by executors, eager updates and set_value. Failed steps
// write none.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <optional>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
namespace optim = espalier::optim;
using namespace espalier::testing;

namespace {

esp::Variable real(double x) { return esp::parameter(esp::tensor(x, esp::float64)); }

esp::Executor trainer(const esp::Variable& loss, const optim::Optimizer& optimizer) {
  return loss.get_executor({.mode = esp::Mode::training, .optimizer = optimizer});
}

void epoch(const esp::Executor& executor) { executor.execute({.epochs = 1, .progress = false}); }

}  // namespace

BOOST_AUTO_TEST_SUITE(executor_parameters)

BOOST_AUTO_TEST_CASE(they_can_be_used_eagerly_between_runs) {
  const esp::Variable w = real(1);
  const esp::Executor executor = trainer(w * 1.0, optim::Sgd(0.25));
  epoch(executor);
  BOOST_TEST(w.item() == 0.75);
  BOOST_TEST((w * 4).item() == 3);
  (w * 2.0).update(optim::Sgd(0.25));  // eagerly
  BOOST_TEST(w.item() == 0.25);
  epoch(executor);
  BOOST_TEST(w.item() == 0.0);
  esp::set_value(w, esp::tensor(10.0, esp::float64));
  epoch(executor);
  BOOST_TEST(w.item() == 9.75);
  executor.step();
  BOOST_TEST(w.item() == 9.5);
}

BOOST_AUTO_TEST_CASE(they_can_be_set_from_a_callback) {
  const esp::Variable w = real(1);
  const esp::Executor executor = trainer(w * 1.0, optim::Sgd(0.25));
  executor.on(esp::Event::epoch_start, [&](const esp::StepInfo& info) {
    if (info.epoch == 1) esp::set_value(w, esp::tensor(8.0, esp::float64));
  });
  executor.execute({.epochs = 2, .progress = false});
  BOOST_TEST(w.item() == 7.75);
}

BOOST_AUTO_TEST_CASE(the_last_callback_has_the_last_word) {
  // No step follows: the executor must not overwrite the value from the callback.
  for (const bool by_executor : {false, true}) {
    const esp::Variable w = real(1), v = real(1);
    const esp::Executor executor = trainer(w * 1.0 + v, optim::Sgd(0.25)),
                        other = trainer(w * 2.0, optim::Sgd(1));
    double expected = 8;
    executor.on(esp::Event::epoch_finish, [&](const esp::StepInfo& info) {
      if (info.epoch < 1) return;
      esp::set_value(w, esp::tensor(8.0, esp::float64));
      if (!by_executor) return;
      epoch(other);
      expected = 6;
    });
    executor.execute({.epochs = 2, .progress = false});
    BOOST_TEST(w.item() == expected);
    BOOST_TEST((w * 2.0).item() == 2 * expected);
    BOOST_TEST(v.item() == 0.5);
    epoch(other);
    BOOST_TEST(w.item() == expected - 2);
  }
}

BOOST_AUTO_TEST_CASE(two_executors_over_one_model_alternate) {
  const esp::Variable w = real(1), x = esp::placeholder("x", {1}, esp::float64);
  const esp::Executor training = trainer(w * 1.0, optim::Sgd(0.25)), inference = (x * w).get_executor();
  const esp::Executor other = trainer(w * 2.0, optim::Sgd(0.25));
  const esp::Tensor one = esp::ones({1}, esp::float64);
  for (int i = 0; i < 3; ++i) {
    const double before = w.item();
    BOOST_TEST(inference.run({{"x", one}}).item() == before);
    epoch(training);
    BOOST_TEST(inference.run({{"x", one}}).item() == before - 0.25);
    epoch(other);
    BOOST_TEST(inference.run({{"x", one}}).item() == before - 0.75);
    BOOST_TEST(w.item() == before - 0.75);
  }
  // One executor runs in a callback of the other.
  std::vector<double> seen;
  training.on(esp::Event::epoch_finish, [&](const esp::StepInfo&) {
    seen.push_back(inference.run({{"x", one}}).item());
  });
  const double before = w.item();
  training.execute({.epochs = 3, .progress = false});
  BOOST_TEST(seen == (std::vector<double>{before - 0.25, before - 0.5, before - 0.75}));
  BOOST_TEST(w.item() == before - 0.75);
}

BOOST_AUTO_TEST_CASE(they_outlive_the_executor) {
  const esp::Variable w = real(1);
  {
    const esp::Executor executor = trainer(w * 1.0, optim::Sgd(0.25));
    epoch(executor);
  }
  BOOST_TEST(w.item() == 0.75);
  (w * 1.0).update(optim::Sgd(0.25));
  BOOST_TEST(w.item() == 0.5);
}

BOOST_AUTO_TEST_CASE(values_that_were_taken_before_stay) {
  const esp::Variable w = real(1);
  const esp::Executor executor = trainer(w * 1.0, optim::Sgd(0.25));
  epoch(executor);
  const esp::Variable doubled = w * 2;
  BOOST_TEST(doubled.item() == 1.5);
  epoch(executor);
  BOOST_TEST(doubled.item() == 1.5);
}

// A view shares the parameter's buffer, and plans write parameters in place.
BOOST_AUTO_TEST_CASE(views_that_were_taken_before_stay) {
  const esp::Variable w = real(1);
  const esp::Executor executor = trainer(w * 1.0, optim::Sgd(0.25));
  epoch(executor);
  const esp::Variable same = esp::reshape(w, {1});
  BOOST_TEST(same.item() == 0.75);
  epoch(executor);
  BOOST_TEST(same.item() == 0.75);
  BOOST_TEST(esp::reshape(w, {1}).item() == 0.5);
}

BOOST_AUTO_TEST_CASE(the_loss_is_that_before_the_update) {
  // The result is the parameter itself, or a view of it.
  for (int which : {0, 1, 2}) {
    const esp::Variable w = real(1);
    const esp::Variable loss = which == 0 ? w * 1.0 : which == 1 ? esp::reshape(w, {1}) : esp::Variable(w);
    const esp::Executor executor = trainer(loss, optim::Sgd(0.25));
    BOOST_TEST(executor.step().loss == 1);
    BOOST_TEST(executor.value().item() == 1);
    BOOST_TEST(w.item() == 0.75);
  }
}

BOOST_AUTO_TEST_CASE(eager_gradients_work_beside_a_plan) {
  const esp::Variable w = esp::parameter(numbers({3}));
  const esp::Variable loss = esp::sum(esp::square(esp::tanh(w)));
  const esp::Executor executor = trainer(loss, optim::Sgd(0.1));
  const esp::Variable same = esp::sum(esp::square(esp::tanh(w)));
  BOOST_TEST(difference(same.gradient(w).value(), loss.gradient(w).value()) < 1e-15);
  BOOST_TEST(difference(same.gradient(w).gradient(w).value(), loss.gradient(w).gradient(w).value()) < 1e-15);
  loss.backward();
  epoch(executor);
  BOOST_TEST(std::isfinite(loss.item()));
}

BOOST_AUTO_TEST_CASE(a_failed_step_leaves_everything_as_after_the_step_before) {
  const esp::Tensor x = numbers({12, 3}).to(esp::float32);
  const auto labels = [](int64_t bad) {
    esp::Tensor list = esp::zeros({12}, esp::int64);
    for (int64_t i = 0; i < 12; ++i) list.at<int64_t>({i}) = i % 2;
    list.at<int64_t>({7}) = bad;  // in the second batch of four
    return list;
  };
  const auto grow = [&](esp::Tensor y, esp::nn::Dense& dense) {
    esp::seed(2);
    const esp::data::Distributor feed({x, y}, {.batch_size = 4});
    const auto [in, label] = feed.get_output_graphs<2>();
    return esp::nn::SoftmaxCrossEntropy()(dense(in), label);
  };
  const optim::Adam adam_a(0.1), adam_b(0.1);
  esp::nn::Dense good(2), bad(2);
  const esp::Executor right = trainer(grow(labels(1), good), adam_a);
  esp::Tensor spoiled = labels(5);
  const esp::Executor wrong = trainer(grow(spoiled, bad), adam_b);
  right.step();
  BOOST_CHECK_EXCEPTION(wrong.execute({.progress = false}), esp::IndexError,
                        says({"5", "executor_parameters_test.cpp"}));
  for (const char* name : {"weight", "bias"}) {
    BOOST_TEST(difference(good.parameter(name).value(), bad.parameter(name).value()) == 0);
    const auto a = adam_a.state_of(good.parameter(name)), b = adam_b.state_of(bad.parameter(name));
    for (size_t i = 0; i < a.size(); ++i)
      BOOST_TEST(difference(a[i].second.value(), b[i].second.value()) == 0);
  }
  // With correct data, it continues at the beginning of the epoch.
  spoiled.at<int64_t>({7}) = 1;
  BOOST_TEST(wrong.execute({.progress = false}).epochs[0].samples == 12);
}

BOOST_AUTO_TEST_CASE(a_failed_step_is_taken_again) {
  const esp::Tensor x = esp::arange(10, esp::float64);
  double refused = 7;
  std::vector<double> shown;
  const auto op = esp::custom_op({.name = "moody",
                                  .forward =
                                      [&](const std::vector<esp::Tensor>& in) {
                                        const double first = in[0].at<double>({0});
                                        if (first == refused) throw std::runtime_error("not today");
                                        if (in[0].elements()) shown.push_back(first);
                                        return in[0].clone();
                                      },
                                  .infer = [](const std::vector<esp::Spec>& specs) { return specs[0]; }});
  const esp::data::Distributor feed({x}, {.batch_size = 1});
  const esp::Executor executor = op(feed.get_output_graphs()).get_executor();
  for (int i = 0; i < 7; ++i) executor.step();
  BOOST_CHECK_THROW(executor.step(), std::runtime_error);
  BOOST_CHECK_THROW(executor.step(), std::runtime_error);  // the same batch
  refused = -1;
  for (int i = 7; i < 10; ++i) BOOST_TEST(executor.step().step == i);
  BOOST_CHECK_THROW(executor.step(), esp::EndOfData);
  BOOST_TEST(shown == (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

BOOST_AUTO_TEST_CASE(a_failed_step_draws_no_random_numbers) {
  bool fail = true;
  const auto op = esp::custom_op({.name = "moody",
                                  .forward =
                                      [&](const std::vector<esp::Tensor>& in) {
                                        if (fail) throw std::runtime_error("not today");
                                        return in[0].clone();
                                      },
                                  .infer = [](const std::vector<esp::Spec>& specs) { return specs[0]; }});
  const esp::Variable x = esp::placeholder("x", {50}), w = esp::parameter(esp::ones({50}));
  const esp::Variable y = esp::dropout(x, 0.5) + w;
  const esp::Executor executor = trainer(y + op({x}) * 0, optim::Sgd(0.0));
  const esp::Feeds feeds{{"x", esp::ones({50})}};
  (void)op;
  esp::seed(3);
  BOOST_CHECK_THROW(executor.run(feeds), std::runtime_error);
  fail = false;
  const esp::Tensor after = executor.run(feeds);
  esp::seed(3);
  BOOST_TEST(difference(after, executor.run(feeds)) == 0);
}

BOOST_AUTO_TEST_CASE(what_is_assigned_within_a_step_is_not_taken_back) {
  const esp::Variable x = esp::placeholder("x", {2}, esp::float64), w = real(1);
  bool assigns = false;
  const auto assign_once = esp::custom_op({.name = "assign_once",
                                           .forward =
                                               [&](const std::vector<esp::Tensor>& in) {
                                                 if (std::exchange(assigns, false))
                                                   esp::set_value(w, esp::tensor(100.0, esp::float64));
                                                 return in[0];
                                               },
                                           .infer = [](const std::vector<esp::Spec>& in) { return in[0]; }});
  const esp::Executor executor = trainer(esp::sum(assign_once({x}) + x * w), optim::Sgd(0.25));
  const esp::Feeds feeds{{"x", esp::ones({2}, esp::float64)}};
  (void)executor.run(feeds);
  BOOST_TEST(w.item() == 0.5);
  assigns = true;
  (void)executor.run(feeds);
  BOOST_TEST(w.item() == 100);
  (void)executor.run(feeds);
  BOOST_TEST(w.item() == 99.5);
}

BOOST_AUTO_TEST_SUITE_END()
