// Placeholders beside feeds: values that `step` and `execute` are given.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// The weighted sum of rows 1, 2, … in batches of 4: `scale` counts for all rows, `weights` one by one.
struct Weighted {
  explicit Weighted(std::vector<esp::Device> devices = {}, bool validates = false)
      : executor(esp::mean(x * weights * scale * w)
                     .get_executor({.optimizer = esp::optim::Sgd(0.01),
                                    .devices = std::move(devices),
                                    .validation = validates ? std::optional(held_out) : std::nullopt})) {}
  static esp::Tensor rows(int64_t n) { return (esp::arange(n, esp::float64).reshape({n, 1}) + 1.0).value(); }

  esp::data::Distributor feed{{rows(8)}, {.batch_size = 4}}, held_out{{rows(4)}, {.batch_size = 4}};
  esp::Variable x = feed.get_output_graphs()[0], w = esp::parameter(esp::ones({1}, esp::float64)),
                scale = esp::placeholder("scale", {}, esp::float64),
                weights = esp::placeholder("weights", {4, 1}, esp::float64);
  esp::Executor executor;
};

/// One device, replicas on the CPU, and each GPU.
std::vector<std::vector<esp::Device>> all_devices() {
  std::vector<std::vector<esp::Device>> all = {{}, {esp::cpu(0), esp::cpu(1)}};
  for (const esp::Device& gpu : gpus_to_test()) all.insert(all.end(), {{gpu}, {gpu, gpu}});
  return all;
}

esp::Tensor number(double x) { return esp::tensor(x, esp::float64); }
esp::Tensor column(std::initializer_list<double> values) {
  return esp::tensor(values, esp::float64).reshape({static_cast<int64_t>(values.size()), 1});
}
bool close(double a, double b) { return std::abs(a - b) <= 1e-12 * (1 + std::abs(a)); }

}  // namespace

BOOST_AUTO_TEST_SUITE(values_beside_feeds)

BOOST_AUTO_TEST_CASE(each_step_has_its_own) {
  for (const auto& devices : all_devices()) {
    Weighted run(devices);
    double w = 1;
    const auto step = [&](double first, double scale, const esp::Tensor& weights) {
      const double* of = weights.data<double>();
      double slope = 0;
      for (int64_t i = 0; i < 4; ++i) slope += (first + static_cast<double>(i)) * of[i] * scale / 4;
      BOOST_TEST(close(run.executor.step({{"weights", weights}, {"scale", number(scale)}}).loss, slope * w));
      w -= 0.01 * slope;
      BOOST_TEST(close(run.w.item(), w));
    };
    step(1, 2, column({1, 0, 0, 3}));
    step(5, -1, column({0, 1, 2, 0}));
    BOOST_CHECK_THROW(run.executor.step({{"weights", column({1, 1, 1, 1})}, {"scale", number(1)}}),
                      esp::EndOfData);
  }
}

BOOST_AUTO_TEST_CASE(the_plan_that_is_shown_is_that_of_training) {
  const esp::data::Distributor feed({Weighted::rows(8)}, {.batch_size = 4}),
      held_out({Weighted::rows(4)}, {.batch_size = 2});
  const esp::Variable w = esp::parameter(esp::ones({1}, esp::float64)), x = feed.get_output_graphs()[0],
                      scale = esp::placeholder("scale", {-1}, esp::float64);
  const esp::Executor executor =
      (esp::mean(x * w) * esp::mean(scale))
          .get_executor({.optimizer = esp::optim::Sgd(0.01), .validation = held_out});
  (void)executor.execute({.epochs = 1, .feeds = {{"scale", esp::ones({3}, esp::float64)}}});
  BOOST_TEST(executor.plan().str().find("assign") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(epochs_and_validation_have_one_value) {
  for (const auto& devices : all_devices()) {
    Weighted run(devices, true);
    const esp::Feeds feeds = {{"scale", number(2)}, {"weights", column({1, 1, 0, 0})}};
    const esp::History history = run.executor.execute({.epochs = 1, .feeds = feeds});
    double w = 1, losses = 0;
    for (const double slope : {(1 + 2) * 2 / 4.0, (5 + 6) * 2 / 4.0}) {
      losses += slope * w;
      w -= 0.01 * slope;
    }
    BOOST_TEST(close(history.epochs[0].loss_sum, losses));
    BOOST_TEST(close(history.epochs[0].validation_loss, (1 + 2) * 2 / 4.0 * w));
  }
}

BOOST_AUTO_TEST_CASE(runs_go_on_from_checkpoints) {
  const TemporaryFolder folder;
  const esp::Feeds feeds = {{"scale", number(2)}, {"weights", column({1, 2, 3, 4})}};
  Weighted whole, first, second;
  whole.executor.execute({.epochs = 2, .feeds = feeds});
  first.executor.execute({.epochs = 1, .checkpoint = folder.path(), .feeds = feeds});
  second.executor.resume(folder.path());
  second.executor.execute({.epochs = 2, .feeds = feeds});
  BOOST_TEST(second.w.item() == whole.w.item());
}

BOOST_AUTO_TEST_CASE(open_axes_follow_the_values) {
  const esp::data::Distributor feed({esp::ones({4, 3})}, {.batch_size = 2});
  const esp::Variable x = feed.get_output_graphs()[0], other = esp::placeholder("other", {3, -1});
  const esp::Executor executor = esp::sum(esp::matmul(x, other)).get_executor({.mode = esp::Mode::inference});
  BOOST_TEST(executor.step({{"other", esp::ones({3, 5})}}).loss == 2 * 3 * 5);
  BOOST_TEST(executor.step({{"other", esp::ones({3, 2})}}).loss == 2 * 3 * 2);
}

BOOST_AUTO_TEST_CASE(values_of_another_size_are_the_same_for_all_rows) {
  // The last batch has two rows, of which each of three pieces has at most one.
  const auto train = [](std::vector<esp::Device> devices, int parts) {
    esp::data::Distributor feed({numbers({10, 3}), numbers({10, 2}, -1, 1, 4)}, {.batch_size = 4}),
        held_out({numbers({5, 3}, -1, 1, 5), numbers({5, 2}, -1, 1, 6)}, {.batch_size = 5});
    const auto [x, y] = feed.get_output_graphs<2>();
    const esp::Variable table = esp::placeholder("table", {3, 2}, esp::float64),
                        offsets = esp::placeholder("offsets", {1, 2}, esp::float64),
                        w = esp::parameter(numbers({3, 3}, -1, 1, 7));
    const esp::Variable h = esp::matmul(esp::tanh(esp::matmul(x, w)), table) + offsets;
    const esp::Executor executor = esp::mean(esp::square(h - y))
                                       .get_executor({.optimizer = esp::optim::Sgd(0.1),
                                                      .devices = std::move(devices),
                                                      .accumulate = parts,
                                                      .validation = held_out});
    const esp::History history = executor.execute(
        {.epochs = 2,
         .progress = false,
         .feeds = {{"table", numbers({3, 2}, -1, 1, 8)}, {"offsets", numbers({1, 2}, -1, 1, 9)}}});
    BOOST_TEST(history.epochs[0].samples == 10);
    return std::pair(w.value(), history.epochs[1]);
  };
  const auto [one, of_one] = train({}, 1);
  for (const auto& devices : all_devices())
    for (const int parts : {1, 2, 3}) {
      const auto [w, epoch] = train(devices, parts);
      BOOST_TEST(difference(w, one) < 1e-12);
      BOOST_TEST(close(epoch.loss_mean, of_one.loss_mean));
      BOOST_TEST(close(epoch.validation_loss, of_one.validation_loss));
    }
}

BOOST_AUTO_TEST_CASE(what_was_taken_for_rows_is_named) {
  const esp::data::Distributor feed({esp::ones({8, 4})}, {.batch_size = 4});
  const esp::Variable x = feed.get_output_graphs()[0], table = esp::placeholder("table", {4, 2}),
                      w = esp::parameter(esp::ones({4}));
  const esp::Variable loss = esp::mean(esp::matmul(x * w, table));
  BOOST_CHECK_EXCEPTION(loss.get_executor({.optimizer = esp::optim::Sgd(0.1), .accumulate = 2}),
                        esp::UnsupportedError,
                        says({"matmul", "'table'", "taken for rows", "first size, 4", here()}));
}

BOOST_AUTO_TEST_CASE(mistakes_name_the_call) {
  Weighted run;
  const auto weights = column({1, 1, 1, 1});
  BOOST_CHECK_EXCEPTION(run.executor.step(), esp::DataError, says({"step", "scale", "no value", here()}));
  BOOST_CHECK_EXCEPTION(run.executor.execute({.feeds = {{"scale", number(1)}}}), esp::DataError,
                        says({"execute", "weights", here()}));
  BOOST_CHECK_EXCEPTION(run.executor.step({{"scale", number(1)}, {"weights", weights}, {"other", weights}}),
                        esp::DataError, says({"no placeholder 'other'", here()}));
  BOOST_CHECK_EXCEPTION(run.executor.step({{"scale", esp::tensor(1.0f)}, {"weights", weights}}),
                        esp::TypeError, says({"step", "scale", "float64", "float32", here()}));
  BOOST_CHECK_EXCEPTION(run.executor.step({{"scale", number(1)}, {"weights", weights.reshape({2, 2})}}),
                        esp::ShapeError, says({"weights", "[4, 1]", "[2, 2]", here()}));
  BOOST_CHECK_EXCEPTION(run.executor.run({{"scale", number(1)}, {"weights", weights}}), esp::DataError,
                        says({"Distributor", "step()", here()}));
  // Nothing of this has taken a step.
  BOOST_TEST(close(run.executor.step({{"scale", number(1)}, {"weights", weights}}).loss, 2.5));
  const esp::Executor alone =
      esp::sum(esp::placeholder("x", {2})).get_executor({.mode = esp::Mode::inference});
  BOOST_CHECK_EXCEPTION(alone.step({{"x", esp::ones({2})}}), esp::DataError, says({"run()", here()}));
  const esp::data::Distributor feed({esp::ones({4, 3})}, {.batch_size = 2});
  const esp::Executor plain =
      esp::sum(feed.get_output_graphs()[0]).get_executor({.mode = esp::Mode::inference});
  BOOST_CHECK_EXCEPTION(plain.step({{"x", esp::ones({2})}}), esp::DataError,
                        says({"no placeholder 'x'", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
