// Random numbers in the steps of scans: those of the same steps written one by one.
#include <boost/test/unit_test.hpp>
#include <functional>
#include <set>

#include "espalier/core/check_gradient.h"
#include "espalier/core/device.h"
#include "espalier/core/recompute.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/loop.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

using Runs = std::function<esp::ScanResult(const esp::ScanStep&, const Variables& state,
                                           const Variables& sequences, bool reverse)>;

/// One node for each operation.
esp::ScanResult written_out(const esp::ScanStep& step, Variables state, const Variables& xs, bool reverse) {
  const int64_t n = xs[0].shape()[0];
  std::vector<Variables> outputs(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) {
    const int64_t t = reverse ? n - 1 - k : k;
    Variables elements;
    for (const Variable& x : xs) elements.push_back(squeeze(slice(x, 0, t, t + 1), 0));
    const esp::ScanResult next = step(state, elements);
    state = next.state;
    outputs[static_cast<size_t>(t)] = next.outputs;
  }
  esp::ScanResult result{state, {}};
  for (size_t i = 0; i < outputs[0].size(); ++i) {
    Variables of_steps;
    for (const Variables& of_step : outputs) of_steps.push_back(of_step[i]);
    result.outputs.push_back(stack(of_steps, 0));
  }
  return result;
}
Runs as_scan(int64_t segment) {
  return [=](const esp::ScanStep& step, const Variables& state, const Variables& xs, bool reverse) {
    return esp::scan(step, state, xs, {.reverse = reverse, .segment = segment});
  };
}

/// Dropout of the input, noise that a gradient reads, and units that all steps drop.
Variable recurrent(const Runs& run, const Variables& in, bool reverse) {
  const Variable &h = in[0], &x = in[1], &u = in[2], &w = in[3];
  const Variable units = esp::dropout(esp::ones_like(h), 0.3);
  const esp::ScanResult r = run(
      [&](const Variables& s, const Variables& e) -> esp::ScanResult {
        const Variable z = matmul(dropout(e[0], 0.4), u) + matmul(s[0] * units, w);
        const Variable next = tanh(z * rand_like(z)) * 0.9;
        return {{next}, {dropout(next, 0.2)}};
      },
      {h}, {x}, reverse);
  return sum(square(r.state[0]), 1) + sum(r.outputs[0] * r.outputs[0], esp::Axes{0, 2});
}

std::vector<Tensor> points() {
  return {numbers({2, 3}, -1, 1, 1), numbers({7, 2, 4}, -1, 1, 2), numbers({4, 3}, -1, 1, 3),
          numbers({3, 3}, -1, 1, 4)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(loop_random)

BOOST_AUTO_TEST_CASE(numbers_are_those_of_the_steps_written_out) {
  for (const bool reverse : {false, true})
    for (const int64_t segment : {0, 2, 3}) {
      struct Values {
        Tensor y;
        std::vector<Tensor> gradients;
        uint64_t streams;
      };
      const auto values = [&](const Runs& run) {
        esp::seed(3);
        Variables in;
        for (const Tensor& p : points()) in.push_back(esp::variable(p));
        const Variable y = recurrent(run, in, reverse);
        Values all{y.value(), {}, 0};
        for (const Variable& x : in) all.gradients.push_back(y.gradient(x).value());
        all.streams = esp::generator().next_stream;
        return all;
      };
      const Values a = values(as_scan(segment)), b = values(written_out);
      BOOST_TEST(difference(a.y, b.y) < 1e-14);
      for (size_t i = 0; i < a.gradients.size(); ++i)
        BOOST_TEST(difference(a.gradients[i], b.gradients[i]) < 1e-13);
      BOOST_TEST(a.streams == b.streams);
      const auto f = [&](const Variables& in) {
        esp::seed(3);
        return recurrent(as_scan(segment), in, reverse);
      };
      const esp::CheckResult result = esp::check_gradient(f, points(), {.order = 2, .tolerance = 2e-6});
      BOOST_TEST(result.passed, result.message);
    }
}

BOOST_AUTO_TEST_CASE(each_step_and_each_evaluation_draws_anew) {
  const Variable x = esp::placeholder("x", {6, 2});
  const Variable noise = esp::scan(
                             [](const Variables& s, const Variables& e) -> esp::ScanResult {
                               return {{s[0]}, {rand_like(e[0])}};
                             },
                             {esp::tensor(0.0f)}, {x})
                             .outputs[0];
  const esp::Executor executor = noise.get_executor({.mode = esp::Mode::inference});
  std::set<float> seen;
  for (int run = 0; run < 3; ++run) {
    const Tensor drawn = executor.run({{"x", esp::zeros({6, 2})}});
    for (int64_t t = 0; t < 6; ++t)
      for (int64_t i = 0; i < 2; ++i) seen.insert(drawn.at<float>({t, i}));
  }
  BOOST_TEST(seen.size() == 36u);
}

BOOST_AUTO_TEST_CASE(trains_alike_eagerly_and_in_plans_with_short_batches) {
  const auto train = [](bool plan, const Runs& run) {
    esp::seed(7);
    esp::data::Distributor feed({numbers({5, 6, 4}, -1, 1), numbers({5, 3}, -1, 1, 9)}, {.batch_size = 2});
    const auto [x, y] = feed.get_output_graphs<2>();
    const Variable u = esp::parameter(numbers({4, 3}, -1, 1, 3), "u"),
                   w = esp::parameter(numbers({3, 3}, -1, 1, 4), "w");
    const Variable loss = mean(recurrent(run, {zeros_like(y), permute(x, {1, 0, 2}), u, w}, false)) +
                          mean(square(dropout(matmul(y, w), 0.5)));
    if (plan)
      (void)loss.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.3)})
          .execute({.epochs = 1, .progress = false});
    else
      for (int i = 0; i < 3; ++i) loss.forward().update(esp::optim::Sgd(0.3));
    return esp::concat({esp::reshape(u, {12}), reshape(w, {9})}).value().clone();
  };
  const Tensor expected = train(false, written_out);
  BOOST_TEST(difference(train(true, written_out), expected) < 1e-12);
  for (const int64_t segment : {0, 3})
    for (const bool plan : {false, true})
      BOOST_TEST(difference(train(plan, as_scan(segment)), expected) < 1e-12);
}

BOOST_AUTO_TEST_CASE(inference_keeps_everything_and_still_draws_what_is_no_dropout) {
  const auto values = [](const Runs& run, bool gradient) {
    esp::seed(5);
    const Variable w = esp::parameter(numbers({3, 3}, -1, 1, 4), "w"),
                   x = esp::placeholder("x", {6, 2, 3}, esp::float64);
    const esp::ScanResult r = run(
        [&](const Variables& s, const Variables& e) -> esp::ScanResult {
          const Variable kept = dropout(matmul(s[0] + e[0], w), 0.5);
          return {{tanh(kept)}, {dropout(kept, 0.2) * rand_like(kept)}};
        },
        {Variable(numbers({2, 3}))}, {x}, false);
    Variable y = mean(r.outputs[0]) + mean(r.state[0]);
    if (gradient) y = y.gradient(w);
    const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference});
    (void)executor.run({{"x", numbers({6, 2, 3})}});
    return executor.run({{"x", numbers({6, 2, 3}, -1, 1, 8)}}).clone();
  };
  for (const bool gradient : {false, true})
    for (const int64_t segment : {0, 4})
      BOOST_TEST(difference(values(as_scan(segment), gradient), values(written_out, gradient)) < 1e-13);
}

BOOST_AUTO_TEST_CASE(what_is_computed_again_has_the_same_numbers) {
  const auto values = [](bool again, bool plan) {
    esp::seed(6);
    const Variable w = esp::variable(numbers({3, 3}, -1, 1, 4)), x = esp::variable(numbers({6, 2, 3}));
    const auto f = [&](const Variable& in) {
      return esp::scan(
                 [&](const Variables& s, const Variables& e) -> esp::ScanResult {
                   const Variable next = tanh(matmul(dropout(e[0] + s[0], 0.4), w));
                   return {{next}, {next * rand_like(next)}};
                 },
                 {esp::zeros({2, 3}, esp::float64)}, {in})
          .outputs[0];
    };
    const Variable y = sum(square(again ? esp::recompute(f, x * 1.5) : f(x * 1.5)));
    const Variable all = esp::concat({esp::reshape(y, {1}), esp::reshape(y.gradient(w), {9})}, 0);
    return plan ? all.get_executor({.mode = esp::Mode::inference, .memory_budget = 1 << 20}).run({}).clone()
                : all.value().clone();
  };
  for (const bool plan : {false, true})
    BOOST_TEST(difference(values(true, plan), values(false, plan)) < 1e-13);
}

BOOST_AUTO_TEST_CASE(loops_in_loops_draw_in_the_order_of_the_steps) {
  const auto values = [](const Runs& run) {
    esp::seed(2);
    const Variable w = esp::variable(numbers({3}, -1, 1, 4));
    const esp::ScanResult r = run(
        [&](const Variables& s, const Variables& e) -> esp::ScanResult {
          const esp::ScanResult inner = run(
              [&](const Variables& h, const Variables& in) -> esp::ScanResult {
                return {{dropout(tanh(h[0] * w) + in[0], 0.3)}, {randn_like(h[0]) * w}};
              },
              {s[0]}, {e[0]}, true);
          return {{inner.state[0] * rand_like(s[0])}, {inner.outputs[0]}};
        },
        {esp::zeros({3}, esp::float64)}, {Variable(numbers({4, 5, 3}))}, false);
    const Variable y = sum(r.state[0]) + sum(square(r.outputs[0]));
    return esp::concat({esp::reshape(y, {1}), y.gradient(w)}, 0).value();
  };
  BOOST_TEST(difference(values(as_scan(0)), values(written_out)) < 1e-12);
}

BOOST_AUTO_TEST_SUITE_END()
