// The search for NaN: which op and line is named, forward and backward, and what a failed step leaves.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/with_assignment.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/loop.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// Rows 1 to 8 in batches of 2, and a parameter.
struct Task {
  esp::data::Distributor feed{{(esp::arange(8) + 1.0f).value().reshape({8, 1})}, {.batch_size = 2}};
  esp::Variable x = feed.get_output_graphs()[0], w = esp::parameter(esp::tensor(2.0f), "slope");

  esp::Executor search(const esp::Variable& loss, esp::ExecutorOptions options = {}) const {
    options.find_nan = true;
    if (!options.mode && !options.optimizer) options.optimizer = esp::optim::Adam({.lr = 0.1});
    return loss.get_executor(options);
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(find_nan)

BOOST_AUTO_TEST_CASE(the_forward_op_is_named) {
  Task t;
  const esp::Variable root =
      esp::sqrt(9.0f - t.x * t.w);  // NaN from x = 5 on, whatever the first steps change
  const esp::Executor executor = t.search(esp::mean(root * 0.1f), {.optimizer = esp::optim::Sgd(1e-3)});
  BOOST_CHECK_EXCEPTION(executor.execute({.progress = false}), esp::NumericError,
                        says({"step 2 of epoch 0", "the loss is NaN", "'sqrt'",
                              "find_nan_test.cpp:", "in the forward pass", "finite operands", here()}));
}

BOOST_AUTO_TEST_CASE(the_line_is_that_of_the_operation) {
  Task t;
  const esp::Variable ratio = (t.x - 5.0f) / (t.x - 5.0f);
  const std::string line = here();
  const int number = std::stoi(line.substr(line.find(':') + 1)) - 1;
  const esp::Executor executor = t.search(esp::sum(ratio * t.w));
  BOOST_CHECK_EXCEPTION(
      executor.execute({.progress = false}), esp::NumericError,
      says({"step 2 of epoch 0", "'divide'", "find_nan_test.cpp:" + std::to_string(number) + ")"}));
}

BOOST_AUTO_TEST_CASE(the_backward_op_is_named) {
  // √ has an infinite derivative at 0, and 0 · ∞ is NaN; the loss itself is finite.
  Task t;
  const esp::Variable distance = esp::sqrt(esp::square((t.x - 5.0f) * t.w));
  const esp::Executor executor = t.search(esp::mean(distance), {.optimizer = esp::optim::Sgd(0.1)});
  executor.step();
  executor.step();
  const double before = t.w.item();
  BOOST_CHECK_EXCEPTION(
      executor.step(), esp::NumericError,
      says({"parameter 'slope' is NaN", "in the backward pass", "find_nan_test.cpp", here()}));
  BOOST_TEST(t.w.item() == before);
}

BOOST_AUTO_TEST_CASE(infinities_behind_a_nan_are_named) {
  Task t;
  const esp::Variable large = esp::exp(t.x * 20.0f);  // infinite from x = 5 on
  const esp::Variable none = large - large;
  BOOST_CHECK_EXCEPTION(t.search(esp::mean(none * t.w)).execute({.progress = false}), esp::NumericError,
                        says({"step 2", "'subtract'", "out of infinity", "'exp'", "finite operands"}));
  Task other;
  BOOST_CHECK_EXCEPTION(
      other.search(esp::mean(esp::exp(other.x * 20.0f) * other.w), {.optimizer = esp::optim::Sgd(1e-30)})
          .execute({.progress = false}),
      esp::NumericError, says({"the loss is infinite", "'exp'"}));
}

BOOST_AUTO_TEST_CASE(what_comes_in_is_named) {
  esp::Tensor rows = esp::ones({4, 1});
  rows.at<float>({3, 0}) = NAN;
  const esp::data::Distributor feed({rows}, {.batch_size = 2});
  const esp::Variable w = esp::parameter(esp::tensor(1.0f), "slope");
  const Task t;
  BOOST_CHECK_EXCEPTION(t.search(esp::mean(feed.get_output_graphs()[0] * w)).execute({.progress = false}),
                        esp::NumericError, says({"step 1", "column 0 of the batch"}));
  const esp::Variable bad = esp::parameter(esp::tensor(INFINITY), "weight");
  BOOST_CHECK_EXCEPTION(t.search(esp::mean(t.x * bad)).execute({.progress = false}), esp::NumericError,
                        says({"step 0", "'weight'", "before the step"}));
}

BOOST_AUTO_TEST_CASE(a_failed_step_changes_nothing) {
  Task t;
  const esp::Variable count = esp::state(esp::tensor(0.0f), "count");
  const esp::Variable ratio = t.w / (t.x - 5.0f);
  const esp::optim::Adam optimizer({.lr = 0.1});
  const esp::Executor executor = esp::with_assignment(esp::mean(ratio * 0.01f), count, count + 1.0f)
                                     .get_executor({.optimizer = optimizer, .find_nan = true});
  executor.step();
  executor.step();
  const double w = t.w.item();
  std::vector<double> states;
  for (const auto& [name, state] : optimizer.state_of(t.w)) states.push_back(state.item());
  BOOST_TEST(!states.empty());
  BOOST_CHECK_THROW(executor.step(), esp::NumericError);
  BOOST_TEST(t.w.item() == w);
  BOOST_TEST(count.item() == 2);
  size_t i = 0;
  for (const auto& [name, state] : optimizer.state_of(t.w)) BOOST_TEST(state.item() == states[i++]);
}

BOOST_AUTO_TEST_CASE(masks_are_no_fault) {
  // Infinities and NaN that no result comes from.
  Task t;
  const esp::Variable logs =
      esp::where(esp::greater(t.x, 5.0f), esp::log(esp::stop_gradient(t.x) - 5.0f), 0.0f);
  const esp::Variable masked = esp::softmax(esp::where(esp::greater(t.x, 3.0f), t.x * t.w, -INFINITY), 0);
  const esp::Executor executor =
      t.search(esp::mean(logs * t.w) + esp::sum(esp::where(esp::greater(t.x, 3.0f), masked, 0.0f)));
  executor.step();  // all masked: NaN, and not used
  Task plain;
  BOOST_CHECK_NO_THROW(plain.search(esp::mean(plain.x * plain.w)).execute({.epochs = 3, .progress = false}));
}

BOOST_AUTO_TEST_CASE(values_are_those_without_a_search) {
  const auto train = [](bool search, int replicas, int accumulate) {
    Task t;
    esp::ExecutorOptions options{.optimizer = esp::optim::Adam({.lr = 0.1}), .accumulate = accumulate};
    options.find_nan = search;
    for (int i = 0; i < replicas; ++i) options.devices.push_back(esp::cpu(i));
    esp::mean(esp::square(esp::tanh(t.x * t.w * 0.1f) - 0.5f))
        .get_executor(options)
        .execute({.epochs = 4, .progress = false});
    return t.w.item();
  };
  for (const auto& [replicas, accumulate] : {std::pair{0, 1}, {2, 1}, {0, 2}, {2, 1}})
    BOOST_TEST(std::abs(train(true, replicas, accumulate) - train(false, replicas, accumulate)) < 1e-6);
}

BOOST_AUTO_TEST_CASE(replicas_and_parts_name_the_op) {
  for (const auto& [replicas, accumulate] : {std::pair{2, 1}, {0, 2}}) {
    Task t;
    esp::ExecutorOptions options{.optimizer = esp::optim::Sgd(0.1), .accumulate = accumulate};
    options.find_nan = true;
    for (int i = 0; i < replicas; ++i) options.devices.push_back(esp::cpu(i));
    const esp::Executor executor =
        esp::mean(esp::sqrt(esp::square((t.x - 5.0f) * t.w))).get_executor(options);
    executor.step();
    executor.step();
    const double before = t.w.item();
    BOOST_CHECK_EXCEPTION(executor.step(), esp::Error, says({"in the backward pass", "find_nan_test.cpp"}));
    BOOST_TEST(t.w.item() == before);
  }
}

BOOST_AUTO_TEST_CASE(inference_is_searched_too) {
  Task t;
  const esp::Variable x = esp::placeholder("x", {2});
  const esp::Executor executor = t.search(esp::log(x), {.mode = esp::Mode::inference});
  BOOST_CHECK_NO_THROW(executor.run({{"x", esp::ones({2})}}));
  BOOST_CHECK_EXCEPTION(executor.run({{"x", esp::zeros({2})}}), esp::NumericError,
                        says({"the value is infinite", "'log'", here()}));
  BOOST_TEST(executor.run({{"x", esp::ones({2})}}).at<float>({1}) == 0);
}

BOOST_AUTO_TEST_CASE(the_op_in_a_loop_is_named) {
  // Sequences of 5 steps. The state is NaN from step 3 on, of which the logarithm of step 2 is the cause.
  std::string line, outer;
  const auto step = [&](const Variables& s, const Variables& x) -> esp::ScanResult {
    const esp::Variable h = s[0] - x[0];
    return {{(line = here(), esp::log(h)) * 1.0f}, {esp::tanh(h)}};
  };
  const auto search = [&](esp::ScanOptions options, bool training, const esp::Tensor& steps) {
    const esp::Variable x = esp::placeholder("x", {5, 2}), w = esp::parameter(esp::ones({2}), "w");
    const esp::ScanResult r = (outer = here(), esp::scan(step, {w * 8.0f}, {x}, options));
    esp::ExecutorOptions how{.mode = training ? esp::Mode::training : esp::Mode::inference};
    if (training) how.optimizer = esp::optim::Sgd(0.1);
    how.find_nan = true;
    const esp::Executor executor = esp::sum(r.state[0] * 0.0f).get_executor(how);
    executor.run({{"x", steps}});
  };
  esp::Tensor steps = esp::zeros({5, 2});
  steps.at<float>({2, 1}) = 5;
  for (const bool training : {true, false})
    for (const int64_t segment : {0, 2})
      for (const bool reverse : {false, true})
        BOOST_CHECK_EXCEPTION(
            search({.reverse = reverse, .segment = segment}, training, steps), esp::NumericError,
            says({"is NaN: 'log' (" + line + ") in step 2 of the scan (" + outer + ") made it",
                  "in the forward pass", "finite operands"}));
  // What came into the loop.
  steps.at<float>({1, 0}) = NAN;
  BOOST_CHECK_EXCEPTION(search({}, true, steps), esp::NumericError,
                        says({"is NaN", "column 0 of the batch of 'x'"}));
}

/// Its 16-bit values are computed in float32, and its counter is not.
BOOST_AUTO_TEST_CASE(the_op_in_a_loop_of_16_bits_is_named) {
  std::string line;
  const auto step = [&](const Variables& s, const Variables& x) -> esp::ScanResult {
    const esp::Variable even = esp::equal(esp::remainder(s[1], int64_t{2}), int64_t{0});
    const esp::Variable h = esp::where(even, s[0] - x[0], s[0]);
    return {{(line = here(), esp::log(h)), s[1] + int64_t{1}}, {}};
  };
  for (const esp::DType dtype : {esp::float16, esp::bfloat16}) {
    const esp::Variable x = esp::placeholder("x", {3, 2}, dtype), start = esp::full({2}, 100, dtype);
    const esp::ScanResult r = esp::scan(step, {start, esp::tensor(int64_t{0})}, {x});
    const esp::Executor executor = esp::sum(r.state[0] * 0.0f).get_executor({.find_nan = true});
    esp::Tensor steps = esp::zeros({3, 2});
    steps.at<float>({2, 1}) = 5;
    BOOST_CHECK_EXCEPTION(executor.run({{"x", steps.to(dtype)}}), esp::NumericError,
                          says({"is NaN: 'log' (" + line + ") in step 2 of the scan", "finite operands"}));
  }
}

BOOST_AUTO_TEST_CASE(infinities_in_loops_are_named) {
  std::string line, infinite;
  const auto step = [&](const Variables& s, const Variables& x) -> esp::ScanResult {
    const esp::Variable big = (infinite = here(), esp::exp(s[0] * x[0]));
    return {{s[0] + 0.0f}, {(line = here(), big - big)}};
  };
  const auto outer = [&](const Variables& s, const Variables& x) -> esp::ScanResult {
    const esp::ScanResult r = esp::scan(step, {s[0]}, {x[0]});
    return {{r.state[0]}, {esp::sum(r.outputs[0])}};
  };
  const esp::Variable x = esp::placeholder("x", {3, 4}), w = esp::parameter(esp::ones({}), "w");
  const esp::Executor executor = esp::sum(esp::scan(outer, {w}, {x}).outputs[0])
                                     .get_executor({.optimizer = esp::optim::Sgd(0.1), .find_nan = true});
  esp::Tensor steps = esp::zeros({3, 4});
  steps.at<float>({2, 1}) = 1000;
  BOOST_CHECK_EXCEPTION(
      executor.run({{"x", steps}}), esp::NumericError,
      says({"'subtract' (" + line + ") in step 1 of the scan (", ") in step 2 of the scan (",
            "out of infinity: 'exp' (" + infinite + ") in step 1 of the scan ("}));
}

BOOST_AUTO_TEST_CASE(infinities_that_come_into_a_loop_of_a_loop_are_named) {
  std::string line, infinite;
  const auto step = [&](const Variables& s, const Variables& x) -> esp::ScanResult {
    return {{s[0] + (line = here(), x[0] - x[0])}, {}};
  };
  const auto outer = [&](const Variables& s, const Variables& x) -> esp::ScanResult {
    const esp::Variable big = (infinite = here(), esp::exp(x[0]));
    return {{esp::scan(step, {s[0]}, {big}).state[0]}, {}};
  };
  const esp::Variable x = esp::placeholder("x", {3, 4}), w = esp::parameter(esp::ones({}), "w");
  const esp::Executor executor =
      esp::scan(outer, {w}, {x}).state[0].get_executor({.optimizer = esp::optim::Sgd(0.1), .find_nan = true});
  esp::Tensor steps = esp::zeros({3, 4});
  steps.at<float>({2, 1}) = 1000;
  BOOST_CHECK_EXCEPTION(
      executor.run({{"x", steps}}), esp::NumericError,
      says({"'subtract' (" + line + ") in step 1 of the scan (", ") in step 2 of the scan (",
            "out of infinity: 'exp' (" + infinite + ") in step 2 of the scan ("}));
}

BOOST_AUTO_TEST_CASE(the_backward_op_in_a_loop_is_named) {
  std::string line;
  const auto step = [&](const Variables& s, const Variables& x) -> esp::ScanResult {
    return {{s[0] + (line = here(), esp::sqrt(esp::square(x[0] * s[0])))}, {}};
  };
  for (const int64_t segment : {0, 2}) {
    const esp::Variable x = esp::placeholder("x", {5, 2}), w = esp::parameter(esp::ones({2}), "w");
    const esp::Executor executor = esp::sum(esp::scan(step, {w}, {x}, {.segment = segment}).state[0])
                                       .get_executor({.optimizer = esp::optim::Sgd(1e-6), .find_nan = true});
    esp::Tensor steps = esp::ones({5, 2});
    executor.run({{"x", steps}});
    steps.at<float>({3, 1}) = 0;
    BOOST_CHECK_EXCEPTION(
        executor.run({{"x", steps}}), esp::NumericError,
        says({"parameter 'w' is NaN", "(" + line + ") in the gradient of step 3 of the scan (",
              "in the backward pass"}));
  }
}

BOOST_AUTO_TEST_SUITE_END()
