// The executor: it trains as eager code does, and handles errors.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/batches.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adagrad.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
namespace optim = espalier::optim;
using namespace espalier::testing;

namespace {

constexpr int64_t rows = 23;  // not a multiple of the batch: the last is short
const esp::data::DistributorOptions batches_of_5{.batch_size = 5, .shuffle = true, .seed = 3};

const esp::Tensor samples = numbers({rows, 4}).to(esp::float32);
const esp::Tensor targets = numbers({rows, 2}, -1, 1, 1).to(esp::float32);

nn::Sequential network(double rate) {
  return nn::Sequential{nn::Dense(8), nn::Tanh(), nn::Dropout(rate), nn::Dense(2)};
}

/// Parameters after training, and the losses of all steps.
struct Run {
  std::vector<esp::Tensor> parameters;
  std::vector<double> losses;
  Run(const nn::Module& model, std::vector<double> l) : losses(std::move(l)) {
    for (const auto& [name, p] : model.parameters()) parameters.push_back(p.value().clone());
  }
};

double difference_of(const Run& a, const Run& b) {
  if (a.losses.size() != b.losses.size() || a.parameters.size() != b.parameters.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.losses.size(); ++i)
    largest = std::max(largest, std::abs(a.losses[i] - b.losses[i]) / (1 + std::abs(a.losses[i])));
  for (size_t i = 0; i < a.parameters.size(); ++i)
    largest = std::max(largest, difference(a.parameters[i], b.parameters[i]));
  return largest;
}

Run eager(const optim::Optimizer& optimizer, double rate, int epochs, esp::data::DistributorOptions options) {
  esp::seed(17);
  const nn::Sequential model = network(rate);
  std::vector<double> losses;
  const auto batches = esp::data::batches<2>({samples, targets}, options);
  for (int epoch = 0; epoch < epochs; ++epoch)
    for (const auto& [x, y] : batches) {
      const esp::Variable loss = nn::MeanSquared()(model(x), y);
      loss.update(optimizer);
      losses.push_back(loss.item());
    }
  return Run(model, losses);
}

/// A loss over a feed, its model and an executor.
struct Frozen {
  nn::Sequential model;
  esp::data::Distributor feed;
  esp::Variable prediction, loss;
  explicit Frozen(double rate, const esp::data::DistributorOptions& options = batches_of_5)
      : model(network(rate)), feed({samples, targets}, options) {
    const auto [x, y] = feed.get_output_graphs<2>();
    prediction = model(x);
    loss = nn::MeanSquared()(prediction, y);
  }
  esp::Executor trainer(const optim::Optimizer& optimizer) const {
    return loss.get_executor({.mode = esp::Mode::training, .optimizer = optimizer});
  }
};

Run frozen(const optim::Optimizer& optimizer, double rate, int epochs,
           esp::data::DistributorOptions options) {
  esp::seed(17);
  const Frozen f(rate, options);
  const esp::Executor executor = f.trainer(optimizer);
  std::vector<double> losses;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) { losses.push_back(info.loss); });
  executor.execute({.epochs = epochs, .progress = false});
  return Run(f.model, losses);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(executor)

BOOST_AUTO_TEST_CASE(it_trains_as_eager_does) {
  const std::function<optim::Optimizer()> optimizers[] = {
      [] { return optim::Sgd(0.1); },
      [] { return optim::Sgd({.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01}); },
      [] { return optim::Adam(0.01); }, [] { return optim::Adagrad(0.1); }};
  for (const auto& make : optimizers)
    for (double rate : {0.0, 0.4})
      for (bool drop : {false, true}) {
        esp::data::DistributorOptions options = batches_of_5;
        options.drop_remainder = drop;
        const Run by_hand = eager(make(), rate, 3, options), plan = frozen(make(), rate, 3, options);
        BOOST_TEST_CONTEXT(make().name() << ", dropout " << rate << ", drop_remainder " << drop)
        BOOST_TEST(difference_of(by_hand, plan) < 1e-5);
      }
  BOOST_TEST(difference_of(frozen(optim::Sgd(0.1), 0.4, 2, batches_of_5),
                           frozen(optim::Sgd(0.1), 0.4, 2, batches_of_5)) == 0);
}

BOOST_AUTO_TEST_CASE(steps_are_the_same_as_epochs) {
  const Run whole = frozen(optim::Adam(0.01), 0.3, 2, batches_of_5);
  esp::seed(17);
  const Frozen f(0.3);
  const esp::Executor executor = f.trainer(optim::Adam(0.01));
  std::vector<double> losses;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    for (int64_t step = 0; step < 5; ++step) {
      const esp::StepInfo info = executor.step();
      BOOST_TEST(info.step == step);
      BOOST_TEST(info.steps == 5);
      BOOST_TEST(info.samples == (step == 4 ? 3 : 5));
      BOOST_TEST(executor.value().item() == info.loss, boost::test_tools::tolerance(1e-6));
      losses.push_back(info.loss);
    }
    BOOST_CHECK_THROW(executor.step(), esp::EndOfData);
  }
  BOOST_TEST(difference_of(whole, Run(f.model, losses)) == 0);
}

BOOST_AUTO_TEST_CASE(weights_may_be_shared) {
  const auto grow = [](const esp::Variable& x, const esp::Variable& w) {
    return esp::mean(esp::square(esp::matmul(esp::tanh(esp::matmul(x, w)), w)));
  };
  const esp::Tensor x = numbers({6, 3}), start = numbers({3, 3}, -1, 1, 2);
  const esp::Variable a = esp::parameter(start.clone()), b = esp::parameter(start.clone());
  const optim::Sgd sgd(0.1);
  const esp::Executor executor = grow(x, b).get_executor({.mode = esp::Mode::training, .optimizer = sgd});
  for (int i = 0; i < 4; ++i) {
    grow(x, a).update(sgd);
    executor.execute({.epochs = 1, .progress = false});
  }
  BOOST_TEST(difference(a.value(), b.value()) < 1e-13);
}

BOOST_AUTO_TEST_CASE(updates_of_the_tree_are_taken_over) {
  Frozen f(0);
  f.loss.update(optim::Sgd(0.1));  // trains on the first batch
  esp::seed(17);
  const Run before(f.model, {});
  const esp::Executor executor = f.loss.get_executor();
  executor.step();
  BOOST_TEST(difference_of(before, Run(f.model, {})) > 0);
  const esp::Executor inference = f.prediction.get_executor();
  const Run trained(f.model, {});
  inference.step();
  BOOST_TEST(difference_of(trained, Run(f.model, {})) == 0);
}

BOOST_AUTO_TEST_CASE(updates_of_the_tree_that_would_train_frozen_parameters_are_refused) {
  const esp::Variable a = esp::parameter(esp::ones({2})), b = esp::parameter(esp::ones({2}));
  const esp::Variable loss = esp::sum(a * 2.0 + b);
  loss.update(optim::Sgd(0.5));
  esp::set_trainable(a, false);
  BOOST_CHECK_EXCEPTION(loss.get_executor({.mode = esp::Mode::training}), esp::Error,
                        says({"frozen since", "name the optimizer", here()}));
  loss.get_executor({.optimizer = optim::Sgd(0.5)}).step();
  BOOST_TEST(a.value().at<float>({0}) == 0);
  BOOST_TEST(b.value().at<float>({0}) == 0);
  esp::set_trainable(a, true);
  loss.get_executor({.mode = esp::Mode::training}).step();
  BOOST_TEST(a.value().at<float>({0}) == -1);
}

BOOST_AUTO_TEST_CASE(history_and_events) {
  const Frozen f(0);
  const esp::Executor executor = f.trainer(optim::Sgd(0.1));
  std::vector<std::string> events;
  double sum = 0, weighted = 0;
  executor.on(esp::Event::epoch_start, [&](const esp::StepInfo& info) {
    events.push_back("start " + std::to_string(info.epoch));
    sum = weighted = 0;
  });
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    events.push_back("step");
    sum += info.loss;
    weighted += info.loss * static_cast<double>(info.samples);
    BOOST_TEST(info.seconds >= 0);
  });
  std::vector<double> sums, means;
  executor.on(esp::Event::epoch_finish, [&](const esp::StepInfo& info) {
    events.push_back("finish");
    sums.push_back(sum);
    means.push_back(weighted / rows);
    BOOST_TEST(info.samples == rows);
    BOOST_TEST(info.step == 5);
    BOOST_TEST(info.loss == means.back(), boost::test_tools::tolerance(1e-12));
    BOOST_TEST(std::isnan(info.validation_loss));
  });
  executor.on(esp::Event::epoch_finish, [&](const esp::StepInfo&) { events.push_back("second"); });
  const esp::History history = executor.execute({.epochs = 2, .progress = false});
  BOOST_TEST(events == (std::vector<std::string>{"start 0", "step", "step", "step", "step", "step", "finish",
                                                 "second", "start 1", "step", "step", "step", "step", "step",
                                                 "finish", "second"}));
  BOOST_REQUIRE(history.epochs.size() == 2u);
  for (size_t i = 0; i < 2; ++i) {
    BOOST_TEST(history.epochs[i].loss_sum == sums[i], boost::test_tools::tolerance(1e-12));
    BOOST_TEST(history.epochs[i].loss_mean == means[i], boost::test_tools::tolerance(1e-12));
    BOOST_TEST(history.epochs[i].samples == rows);
    BOOST_TEST(history.epochs[i].seconds > 0);
    BOOST_TEST(std::isnan(history.epochs[i].validation_loss));
  }
  BOOST_TEST(history.epochs[1].loss_mean < history.epochs[0].loss_mean);
  BOOST_TEST(executor.execute({.epochs = 0}).epochs.empty());
  BOOST_CHECK_EXCEPTION(executor.execute({.epochs = -1}), esp::Error, says({"-1", here()}));
}

BOOST_AUTO_TEST_CASE(callbacks_stop_throw_and_register_others) {
  const Frozen f(0);
  const esp::Executor executor = f.trainer(optim::Sgd(0.1));
  int steps = 0, late = 0;
  bool stop = true;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    ++steps;
    if (stop && info.epoch == 1 && info.step == 1) executor.stop();
  });
  BOOST_TEST(executor.execute({.epochs = 9, .progress = false}).epochs.size() == 2u);
  BOOST_TEST(steps == 7);
  stop = false;
  BOOST_TEST(executor.execute({.epochs = 1, .progress = false}).epochs.size() == 1u);  // starts again
  BOOST_TEST(steps == 12);

  bool fail = true;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    if (fail && info.step == 2) throw std::runtime_error("enough");
    if (info.step == 0)
      for (int i = 0; i < 20; ++i)
        executor.on(esp::Event::epoch_finish, [&](const esp::StepInfo&) { ++late; });
  });
  BOOST_CHECK_THROW(executor.execute({.epochs = 1, .progress = false}), std::runtime_error);
  BOOST_TEST(steps == 15);
  fail = false;
  executor.execute({.epochs = 1, .progress = false});
  BOOST_TEST(steps == 20);
  BOOST_TEST(late == 40);
}

BOOST_AUTO_TEST_CASE(validation_is_inference_over_another_feed) {
  esp::seed(17);
  const Frozen f(0.5);
  const esp::Tensor x = numbers({7, 4}, -2, 2, 8).to(esp::float32),
                    y = numbers({7, 2}, -1, 1, 9).to(esp::float32);
  const esp::Executor executor =
      f.loss.get_executor({.mode = esp::Mode::training,
                           .optimizer = optim::Sgd(0.1),
                           .validation = esp::data::Distributor({x, y}, {.batch_size = 3})});
  double last_step = 0;
  executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) { last_step = info.loss; });
  for (int i = 0; i < 3; ++i) {
    const esp::History history = executor.execute({.epochs = 1, .progress = false});
    f.model.state();
    nn::Sequential calm = f.model;
    calm.train(false);
    BOOST_TEST(history.epochs[0].validation_loss == nn::MeanSquared()(calm(x), y).item(),
               boost::test_tools::tolerance(1e-5));
    calm.train(true);
    BOOST_TEST(executor.value().item() == last_step);  // the training loss, not that of validation
  }
  // Validation draws no random numbers, so it does not change training.
  std::vector<double> losses[2];
  for (int with : {0, 1}) {
    esp::seed(17);
    const Frozen g(0.5);
    esp::ExecutorOptions options{.mode = esp::Mode::training, .optimizer = optim::Sgd(0.1)};
    if (with) options.validation = esp::data::Distributor({x, y}, {.batch_size = 3});
    for (const auto& epoch : g.loss.get_executor(options).execute({.epochs = 3, .progress = false}).epochs)
      losses[with].push_back(epoch.loss_sum);
  }
  BOOST_TEST(losses[0] == losses[1]);
}

BOOST_AUTO_TEST_CASE(each_validation_draws_anew) {
  const esp::data::Distributor feed({numbers({4, 3})}, {.batch_size = 4});
  const esp::Variable x = feed.get_output_graphs()[0], w = esp::parameter(numbers({3}, -1, 1, 1), "w");
  const auto history =
      esp::mean(esp::square(x * w + esp::rand_like(x)))
          .get_executor({.optimizer = optim::Sgd(0.0),
                         .validation = esp::data::Distributor({numbers({4, 3})}, {.batch_size = 4})})
          .execute({.epochs = 2, .progress = false});
  BOOST_TEST(history.epochs[0].validation_loss != history.epochs[1].validation_loss);
}

BOOST_AUTO_TEST_CASE(inference_leaves_dropout_out) {
  esp::seed(17);
  const Frozen f(0.5, {.batch_size = 10});
  nn::Sequential calm = f.model;
  calm.train(false);
  const esp::Tensor expected = calm(samples).value();
  calm.train(true);
  const esp::Executor executor = f.prediction.get_executor({.mode = esp::Mode::inference});
  for (int64_t step = 0; step < 3; ++step) {
    executor.step();
    BOOST_TEST(difference(expected.slice(0, 10 * step, std::min<int64_t>(rows, 10 * step + 10)),
                          executor.value()) < 1e-6);
  }
  BOOST_CHECK_THROW(executor.step(), esp::EndOfData);
}

BOOST_AUTO_TEST_CASE(placeholders_take_batches_of_any_size) {
  const esp::Variable x = esp::placeholder("x", {1, 3}, esp::float64),
                      y = esp::placeholder("y", {1, 3}, esp::float64),
                      scale = esp::placeholder("scale", {}, esp::float64);
  const esp::Variable w = esp::parameter(numbers({1, 3})), b = esp::parameter(numbers({3}, -1, 1, 5));
  const auto grow = [&](const esp::Variable& in, const esp::Variable& out, const esp::Variable& by,
                        const esp::Variable& weight, const esp::Variable& bias) {
    return esp::mean(esp::square(in * weight * by + bias - out));
  };
  const esp::Executor executor =
      grow(x, y, scale, w, b).get_executor({.mode = esp::Mode::training, .optimizer = optim::Sgd(0.1)});
  const esp::Variable w2 = esp::parameter(w.value().clone()), b2 = esp::parameter(b.value().clone());
  for (int64_t n : {4, 1, 7, 4}) {
    const esp::Tensor in = numbers({n, 3}, -2, 2, 20), out = numbers({n, 3}, -2, 2, 21),
                      by = esp::tensor(2.0, esp::float64);
    const esp::Variable loss = grow(in, out, by, w2, b2);
    loss.update(optim::Sgd(0.1));
    BOOST_TEST(executor.run({{"scale", by}, {"x", in}, {"y", out}}).item() == loss.item(),
               boost::test_tools::tolerance(1e-12));
    BOOST_TEST(difference(w.value(), w2.value()) < 1e-13);
    BOOST_TEST(difference(b.value(), b2.value()) < 1e-13);
  }
}

BOOST_AUTO_TEST_CASE(feeds_that_do_not_fit) {
  const esp::Variable x = esp::placeholder("x", {2, 3}), y = esp::placeholder("y", {2, 3});
  const esp::Executor executor = (x + y).get_executor();
  const esp::Tensor good = esp::ones({2, 3});
  BOOST_CHECK_EXCEPTION(executor.run({{"x", good}}), esp::DataError, says({"'y'", here()}));
  BOOST_CHECK_EXCEPTION(executor.run({{"x", good}, {"y", good}, {"z", good}}), esp::DataError,
                        says({"'z'", here()}));
  BOOST_CHECK_EXCEPTION(executor.run({{"x", esp::ones({2, 4})}, {"y", good}}), esp::ShapeError,
                        says({"'x'", "[2, 3]", "[2, 4]", here()}));
  BOOST_CHECK_EXCEPTION(executor.run({{"x", esp::ones({3})}, {"y", good}}), esp::ShapeError,
                        says({"'x'", "[3]"}));
  BOOST_CHECK_EXCEPTION(executor.run({{"x", good}, {"y", esp::ones({2, 3}, esp::float64)}}), esp::TypeError,
                        says({"'y'", "float64", here()}));
  BOOST_CHECK_EXCEPTION(executor.run({{"x", good}, {"y", esp::Tensor()}}), esp::TypeError,
                        says({"'y'", "undefined"}));
  BOOST_CHECK_EXCEPTION(executor.run({{"x", good}, {"y", esp::ones({3, 3})}}), esp::ShapeError,
                        says({"add", "[2, 3]", "[3, 3]"}));
  BOOST_CHECK_EXCEPTION(executor.execute(), esp::DataError, says({"placeholder", "run", here()}));
  BOOST_CHECK_EXCEPTION(executor.step(), esp::DataError, says({"placeholder", here()}));
  BOOST_CHECK_EXCEPTION((x + y).value(), esp::DataError, says({"'x'"}));
  BOOST_TEST(executor.run({{"x", good}, {"y", good}}).at<float>({1, 2}) == 2);  // still in order

  const Frozen f(0);
  BOOST_CHECK_EXCEPTION(f.prediction.get_executor().run({}), esp::DataError, says({"Distributor", here()}));
  BOOST_CHECK_EXCEPTION(f.prediction.get_executor().value(), esp::Error,
                        says({"has not run a step yet", "executor_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(options_that_do_not_fit) {
  const Frozen f(0);
  const optim::Sgd sgd(0.1);
  using esp::Mode;
  BOOST_CHECK_EXCEPTION(f.loss.get_executor({.mode = Mode::training}), esp::Error,
                        says({"optimizer", here()}));
  BOOST_CHECK_EXCEPTION(f.loss.get_executor({.mode = Mode::inference, .optimizer = sgd}), esp::Error,
                        says({"optimizer", here()}));
  BOOST_CHECK_EXCEPTION(f.loss.get_executor({.mode = Mode::inference, .validation = f.feed}), esp::Error,
                        says({"validation", here()}));
  BOOST_CHECK_EXCEPTION(f.loss.get_executor({.mode = Mode::inference, .without = {"magic"}}), esp::Error,
                        says({"magic", here()}));
  if (esp::all_gpus().empty())
    BOOST_CHECK_EXCEPTION(f.loss.get_executor({.mode = Mode::inference, .devices = {esp::gpu()}}),
                          esp::DeviceError, says({"cuda:0", here()}));
  const esp::Variable x = esp::variable({1.0f});
  BOOST_CHECK_EXCEPTION((x * 2).get_executor({.mode = Mode::training, .optimizer = sgd}), esp::Error,
                        says({"parameter", here()}));
  const esp::data::Distributor other({samples}, {.batch_size = 5});
  BOOST_CHECK_EXCEPTION(f.loss.get_executor({.mode = Mode::training, .optimizer = sgd, .validation = other}),
                        esp::DataError, says({"validation", "[5, 4]", "[5, 2]", here()}));
  const esp::data::Distributor wide({samples, targets.to(esp::float64)}, {.batch_size = 5});
  BOOST_CHECK_EXCEPTION(f.loss.get_executor({.mode = Mode::training, .optimizer = sgd, .validation = wide}),
                        esp::DataError, says({"validation", "float64 [5, 2]", "float32 [5, 2]", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
