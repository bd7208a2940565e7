// Several outputs of one plan: tensors after a step, and means of scalars in the History.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// A regression over 10 rows in batches of 4, so that the last one is short.
struct Regression {
  using Change = std::function<void(esp::ExecutorOptions&)>;
  explicit Regression(const Change& change = {}) {
    esp::ExecutorOptions options{.optimizer = esp::optim::Sgd(1e-3),
                                 .validation = held_out,
                                 .outputs = {{"prediction", prediction},
                                             {"size", esp::mean(esp::abs(prediction))},
                                             {"total", esp::sum(prediction)},
                                             {"norm", esp::sum(esp::square(w))}}};
    if (change) change(options);
    executor = esp::mean(esp::square(prediction - y)).get_executor(options);
  }
  static esp::Tensor rows(int64_t n) {
    return (esp::arange(3 * n, esp::float64).reshape({n, 3}) * 0.1).value();
  }

  esp::data::Distributor feed{{rows(10), esp::ones({10, 1}, esp::float64)}, {.batch_size = 4}},
      held_out{{rows(6), esp::zeros({6, 1}, esp::float64)}, {.batch_size = 4}};
  std::vector<esp::Variable> columns = feed.get_output_graphs();
  esp::Variable x = columns[0], y = columns[1],
                w = esp::parameter(esp::tensor({{0.5}, {-1.0}, {0.25}}, esp::float64)),
                prediction = esp::matmul(x, w);
  std::optional<esp::Executor> executor;
};

/// The rows from `begin` to `end` times the weights.
esp::Tensor product(const esp::Tensor& rows, int64_t begin, int64_t end, const esp::Tensor& w) {
  return esp::matmul(rows.slice(0, begin, end), w).value();
}
double sum_of(const esp::Tensor& x) { return esp::sum(x).item(); }
bool close(double a, double b) { return std::abs(a - b) <= 1e-12 * (1 + std::abs(a)); }

}  // namespace

BOOST_AUTO_TEST_SUITE(outputs)

BOOST_AUTO_TEST_CASE(tensors_are_those_of_the_last_step) {
  Regression run;
  BOOST_CHECK_EXCEPTION(run.executor->output("prediction"), esp::Error, says({"step", here()}));
  for (const auto& [begin, end] : {std::pair{0, 4}, {4, 8}, {8, 10}}) {
    const esp::Tensor before = run.w.value().clone();
    run.executor->step();
    const esp::Tensor expected = product(Regression::rows(10), begin, end, before);
    BOOST_TEST(difference(Array(expected), run.executor->output("prediction")) < 1e-12);
    BOOST_TEST(close(run.executor->output("total").item(), sum_of(expected)));
    BOOST_TEST(close(run.executor->output("norm").item(), sum_of(esp::square(before).value())));
  }
  BOOST_CHECK_EXCEPTION(run.executor->output("nothing"), esp::Error,
                        says({"nothing", "prediction, size, total, norm", here()}));
}

BOOST_AUTO_TEST_CASE(parameters_and_their_views_are_those_before_the_step) {
  const esp::Variable w = esp::parameter(esp::tensor({1.0, 2.0, 3.0, 4.0}, esp::float64));
  const esp::Variable square = esp::reshape(w, {2, 2});
  const esp::Executor executor =
      esp::sum(esp::square(w))
          .get_executor({.optimizer = esp::optim::Sgd(0.25),  // which halves it
                         .outputs = {{"w", w}, {"square", square}, {"turned", esp::transpose(square)}}});
  for (const double scale : {1.0, 0.5}) {
    executor.step();
    BOOST_TEST(Array(executor.output("w")).values ==
               (std::vector{1 * scale, 2 * scale, 3 * scale, 4 * scale}));
    BOOST_TEST(Array(executor.output("square")).values == Array(executor.output("w")).values);
    BOOST_TEST(Array(executor.output("turned")).values ==
               (std::vector{1 * scale, 3 * scale, 2 * scale, 4 * scale}));
    BOOST_TEST(w.value().at<double>({3}) == 2 * scale);
  }
}

BOOST_AUTO_TEST_CASE(scalars_are_averaged_over_samples) {
  Regression run([](auto& options) { options.optimizer = esp::optim::Sgd(0.0); });
  const esp::History history = run.executor->execute({.epochs = 2});
  const esp::Tensor all = product(Regression::rows(10), 0, 10, run.w.value()),
                    other = product(Regression::rows(6), 0, 6, run.w.value());
  for (const esp::EpochRecord& epoch : history.epochs) {
    BOOST_TEST(epoch.outputs.size() == 3u);
    BOOST_TEST(close(epoch.outputs.at("size"), sum_of(esp::abs(all).value()) / 10));
    BOOST_TEST(close(epoch.validation_outputs.at("size"), sum_of(esp::abs(other).value()) / 6));
    BOOST_TEST(close(epoch.outputs.at("norm"), sum_of(esp::square(run.w).value())));
    // A sum counts once for each of its samples, as the loss does.
    const double totals =
        4 * sum_of(all.slice(0, 0, 4)) + 4 * sum_of(all.slice(0, 4, 8)) + 2 * sum_of(all.slice(0, 8, 10));
    BOOST_TEST(close(epoch.outputs.at("total"), totals / 10));
  }
  // The output is that of the last training step.
  BOOST_TEST((run.executor->output("prediction").shape() == esp::Shape{2, 1}));
}

BOOST_AUTO_TEST_CASE(replicas_have_the_same_outputs) {
  const auto take = [](const Regression::Change& change) {
    Regression run(change);
    const esp::History history = run.executor->execute({.epochs = 2});
    run.executor->step();
    return std::tuple(history, run.executor->output("prediction"), run.executor->output("total").item());
  };
  const auto [history, prediction, total] = take({});
  for (const int replicas : {2, 3, 5}) {
    const auto [other, rows, sum] = take([&](auto& options) {
      for (int i = 0; i < replicas; ++i) options.devices.push_back(esp::cpu(i));
    });
    BOOST_TEST(difference(Array(prediction), rows) < 1e-12);
    BOOST_TEST(close(total, sum));
    for (size_t e = 0; e < 2; ++e) {
      BOOST_TEST(close(history.epochs[e].loss_mean, other.epochs[e].loss_mean));
      for (const auto& [name, value] : history.epochs[e].outputs)
        BOOST_TEST(close(value, other.epochs[e].outputs.at(name)), name << " on " << replicas);
      for (const auto& [name, value] : history.epochs[e].validation_outputs)
        BOOST_TEST(close(value, other.epochs[e].validation_outputs.at(name)), name << " on " << replicas);
    }
  }
  // Parts of a batch add up as well; their rows are gone.
  Regression parts([](auto& options) { options.accumulate = 2; });
  const esp::History accumulated = parts.executor->execute({.epochs = 2});
  for (const auto& [name, value] : history.epochs[1].outputs)
    BOOST_TEST(close(value, accumulated.epochs[1].outputs.at(name)), name << " in parts");
  parts.executor->step();
  BOOST_TEST(close(total, parts.executor->output("total").item()));
  BOOST_CHECK_EXCEPTION(parts.executor->output("prediction"), esp::UnsupportedError,
                        says({"output(\"prediction\")", "2 micro-batches", here()}));
}

BOOST_AUTO_TEST_CASE(gpus_have_the_same_outputs) {
  const auto take = [](std::vector<esp::Device> devices) {
    Regression run([&](auto& options) { options.devices = std::move(devices); });
    const esp::History history = run.executor->execute({.epochs = 2});
    run.executor->step();
    return std::pair(history, run.executor->output("prediction"));
  };
  const auto [history, prediction] = take({});
  for (const esp::Device& gpu : gpus_to_test())
    for (const auto& devices : {std::vector{gpu}, {gpu, gpu}}) {
      const auto [other, rows] = take(devices);
      BOOST_TEST(difference(Array(prediction), rows) < 1e-12);
      for (size_t e = 0; e < 2; ++e) {
        BOOST_TEST(close(history.epochs[e].loss_sum, other.epochs[e].loss_sum));
        for (const auto& [name, value] : history.epochs[e].outputs)
          BOOST_TEST(close(value, other.epochs[e].outputs.at(name)), name);
        for (const auto& [name, value] : history.epochs[e].validation_outputs)
          BOOST_TEST(close(value, other.epochs[e].validation_outputs.at(name)), name);
      }
    }
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_a_sum_beside_means) {
  const auto take = [](std::vector<esp::Device> devices) {
    Regression graph;
    const esp::Executor executor = esp::sum(esp::square(graph.prediction - graph.y))
                                       .get_executor({.optimizer = esp::optim::Sgd(1e-3),
                                                      .devices = std::move(devices),
                                                      .outputs = {{"mean", esp::mean(graph.prediction)},
                                                                  {"sum", esp::sum(graph.prediction)}}});
    const esp::History history = executor.execute({.epochs = 2});
    return std::pair(history.epochs[1], graph.w.value().clone());
  };
  const auto [one, w] = take({});
  const auto [two, v] = take({esp::cpu(0), esp::cpu(1)});
  BOOST_TEST(close(one.outputs.at("mean"), two.outputs.at("mean")));
  BOOST_TEST(close(one.outputs.at("sum"), two.outputs.at("sum")));
  BOOST_TEST(close(one.loss_sum, two.loss_sum));
  BOOST_TEST(difference(Array(w), v) < 1e-12);
}

BOOST_AUTO_TEST_CASE(checkpoints_keep_the_means) {
  const TemporaryFolder folder;
  Regression whole, first, second;
  const esp::History expected = whole.executor->execute({.epochs = 3});
  first.executor->on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    if (info.epoch == 1 && info.step == 1) first.executor->stop();
  });
  first.executor->execute({.epochs = 3, .checkpoint = folder.path(), .checkpoint_every = 1});
  // The run that was stopped in mid-epoch ended that epoch; the checkpoint before it did not.
  second.executor->resume(folder.path());
  const esp::History resumed = second.executor->execute({.epochs = 3});
  BOOST_REQUIRE(resumed.epochs.size() == 3u);
  BOOST_TEST(resumed.epochs[0].outputs.at("size") == expected.epochs[0].outputs.at("size"));
  BOOST_TEST(resumed.epochs[0].validation_outputs.at("size") ==
             expected.epochs[0].validation_outputs.at("size"));
  BOOST_CHECK_EXCEPTION(
      Regression([](auto& options) { options.outputs.clear(); }).executor->resume(folder.path()),
      esp::FileError, says({"scalar outputs", "size, total, norm", "none"}));
}

BOOST_AUTO_TEST_CASE(runs_without_validation_have_no_figures_of_it_after_a_checkpoint) {
  const TemporaryFolder folder;
  const auto without = [](esp::ExecutorOptions& options) { options.validation.reset(); };
  const Regression first(without), second(without);
  first.executor->execute({.epochs = 2, .progress = false, .checkpoint = folder.path()});
  second.executor->resume(folder.path());
  const esp::History resumed = second.executor->execute({.epochs = 3, .progress = false});
  BOOST_TEST_REQUIRE(resumed.epochs.size() == 3u);
  for (const esp::EpochRecord& epoch : resumed.epochs) {
    BOOST_TEST(epoch.outputs.size() == 3u);
    BOOST_TEST(epoch.validation_outputs.empty());
    BOOST_TEST(!epoch.figure("validation_size").has_value());
  }
}

BOOST_AUTO_TEST_CASE(a_validation_loss_that_is_no_number_has_its_figures_after_a_checkpoint) {
  const TemporaryFolder folder;
  const auto make = [] {
    const esp::data::Distributor feed({esp::ones({4, 1})}, {.batch_size = 2}),
        held_out({esp::full({4, 1}, -1)}, {.batch_size = 2});
    const auto [x] = feed.get_output_graphs<1>();
    const esp::Variable w = esp::parameter(esp::ones({1}));
    return esp::mean(esp::sqrt(x) * w)
        .get_executor(
            {.optimizer = esp::optim::Sgd(0.1), .validation = held_out, .outputs = {{"size", esp::mean(x)}}});
  };
  make().execute({.epochs = 1, .progress = false, .checkpoint = folder.path()});
  auto second = make();
  second.resume(folder.path());
  const esp::History resumed = second.execute({.epochs = 2, .progress = false});
  BOOST_TEST_REQUIRE(resumed.epochs.size() == 2u);
  for (const esp::EpochRecord& epoch : resumed.epochs) {
    BOOST_TEST(std::isnan(epoch.validation_loss));
    BOOST_TEST(epoch.figure("validation_size").value_or(0) == -1);
  }
}

BOOST_AUTO_TEST_CASE(inference_and_graphs_without_data) {
  const esp::Variable x = esp::placeholder("x", {4, 3});
  const esp::Variable w = esp::parameter(esp::ones({3, 2}));
  const esp::Variable h = esp::matmul(x, w);
  const esp::Executor executor =
      esp::relu(h).get_executor({.mode = esp::Mode::inference,
                                 .outputs = {{"before", h}, {"largest", esp::argmax(h)}, {"weights", w}}});
  const esp::Tensor in = esp::full({2, 3}, -1);
  BOOST_TEST(sum_of(executor.run({{"x", in}})) == 0);
  BOOST_TEST(sum_of(executor.output("before")) == -12);
  BOOST_TEST((executor.output("largest").dtype() == esp::int64));
  BOOST_TEST(sum_of(executor.output("weights")) == 6);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_an_output) {
  const auto refused = [](const esp::ExecutorOptions& options, std::initializer_list<std::string> words) {
    const esp::Variable w = esp::parameter(esp::ones({3}));
    BOOST_CHECK_EXCEPTION(esp::sum(w).get_executor(options), esp::Error, says(words));
  };
  const esp::Variable one = esp::ones({1});
  refused({.outputs = {{"", one}}}, {"no name"});
  refused({.outputs = {{"a", one}, {"a", one}}}, {"'a'"});
  refused({.outputs = {{"a", {}}}}, {"'a'", "undefined"});
  // A count of rows, of which each replica has a part.
  Regression graph;
  const esp::Variable count = esp::sum(esp::cast(esp::greater(graph.prediction, 0), esp::int64));
  const auto counting = [&](std::vector<esp::Device> devices) {
    return esp::mean(graph.prediction)
        .get_executor({.optimizer = esp::optim::Sgd(0.0),
                       .devices = std::move(devices),
                       .outputs = {{"count", count}}});
  };
  BOOST_TEST(counting({}).execute().epochs[0].outputs.at("count") >= 0);
  BOOST_CHECK_EXCEPTION(counting({esp::cpu(0), esp::cpu(1)}), esp::UnsupportedError,
                        says({"output", "int64", "cast"}));
}

BOOST_AUTO_TEST_SUITE_END()
