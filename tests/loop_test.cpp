// Loops over sequences: against the same steps written one by one.
#include "espalier/ops/functions/loop.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/check_gradient.h"
#include "espalier/core/deferred/deferred.h"
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/train_phase.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/cells.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

/// h' = tanh(x·u + h·w), with h' · x₀ as output.
esp::ScanStep recurrence(const Variable& u, const Variable& w) {
  return [=](const Variables& h, const Variables& x) -> esp::ScanResult {
    const Variable next = tanh(matmul(x[0], u) + matmul(h[0], w) * 0.5);
    return {{next}, {next * slice(x[0], 1, 0, 1)}};
  };
}
/// The same, one node for each operation.
esp::ScanResult written_out(const esp::ScanStep& step, Variables state, const Variable& xs, bool reverse) {
  const int64_t n = xs.shape()[0];
  Variables outputs(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) {
    const int64_t t = reverse ? n - 1 - k : k;
    const esp::ScanResult next = step(state, {squeeze(slice(xs, 0, t, t + 1), 0)});
    state = next.state;
    outputs[static_cast<size_t>(t)] = next.outputs[0];
  }
  return {state, {stack(outputs, 0)}};
}
/// What depends on the last state and on all outputs.
Variable both(const esp::ScanResult& r) {
  return sum(square(r.state[0]), 1) + sum(r.outputs[0] * r.outputs[0], esp::Axes{0, 2});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(loop)

BOOST_AUTO_TEST_CASE(equals_the_steps_written_out) {
  for (const bool reverse : {false, true})
    for (const int64_t segment : {0, 2, 3}) {
      const auto run = [&](bool as_scan, const Variables& in) {
        const esp::ScanStep step = recurrence(in[2], in[3]);
        return both(as_scan ? esp::scan(step, {in[0]}, {in[1]}, {.reverse = reverse, .segment = segment})
                            : written_out(step, {in[0]}, in[1], reverse));
      };
      const std::vector<Tensor> points{numbers({2, 3}, -1, 1, 1), numbers({7, 2, 4}, -1, 1, 2),
                                       numbers({4, 3}, -1, 1, 3), numbers({3, 3}, -1, 1, 4)};
      Variables a, b;
      for (const Tensor& p : points) a.push_back(esp::variable(p)), b.push_back(esp::variable(p));
      const Variable y = run(true, a), z = run(false, b);
      BOOST_TEST(difference(y.value(), z.value()) < 1e-14);
      for (size_t i = 0; i < a.size(); ++i)
        BOOST_TEST(difference(y.gradient(a[i]).value(), z.gradient(b[i]).value()) < 1e-13);
      const auto f = [&](const Variables& in) { return run(true, in); };
      const esp::CheckResult result = esp::check_gradient(f, points, {.order = 2, .tolerance = 2e-6});
      BOOST_TEST(result.passed, result.message);
    }
}

BOOST_AUTO_TEST_CASE(trains_alike_eagerly_and_in_plans_with_short_batches) {
  const auto train = [](bool plan, bool as_scan, int64_t segment) {
    esp::data::Distributor feed({numbers({5, 6, 4}, -1, 1), numbers({5, 3}, -1, 1, 9)}, {.batch_size = 2});
    const auto [x, y] = feed.get_output_graphs<2>();
    const Variable u = esp::parameter(numbers({4, 3}, -1, 1, 3), "u"),
                   w = esp::parameter(numbers({3, 3}, -1, 1, 4), "w");
    const Variable xs = permute(x, {1, 0, 2}), h = zeros_like(y);
    const esp::ScanStep step = recurrence(u, w);
    const esp::ScanResult r =
        as_scan ? esp::scan(step, {h}, {xs}, {.segment = segment}) : written_out(step, {h}, xs, false);
    const Variable loss = mean(square(r.state[0] - y)) + mean(square(r.outputs[0]));
    if (plan)
      (void)loss.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.3)})
          .execute({.epochs = 1, .progress = false});
    else
      for (int i = 0; i < 3; ++i) loss.forward().update(esp::optim::Sgd(0.3));
    return esp::concat({esp::reshape(u, {12}), reshape(w, {9})}).value().clone();
  };
  const Tensor expected = train(false, false, 0);
  for (const int64_t segment : {0, 3}) {
    BOOST_TEST(difference(train(false, true, segment), expected) < 1e-12);
    BOOST_TEST(difference(train(true, true, segment), expected) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(cells_and_open_lengths_in_plans) {
  const esp::nn::LSTMCell cell(3, 4);
  const auto run = [&](const Variable& x) {
    const Variable start = esp::broadcast_to(0.0f, {2, 4});
    const esp::ScanResult r = esp::scan(
        [&](const Variables& s, const Variables& in) -> esp::ScanResult {
          const esp::nn::LSTMState next = cell(in[0], {s[0], s[1]});
          return {{next.h, next.c}, {next.h}};
        },
        {start, start}, {x});
    return r.outputs[0];
  };
  const Variable x = esp::placeholder("x", {-1, 2, 3}, esp::float32);
  const esp::Executor executor = run(x).get_executor({.mode = esp::Mode::inference});
  for (const int64_t steps : {1, 4, 9}) {
    const Tensor in = numbers({steps, 2, 3}).to(esp::float32);
    esp::nn::LSTMState state;
    Variables outputs;
    for (int64_t t = 0; t < steps; ++t) {
      const Variable own = squeeze(slice(Variable(in), 0, t, t + 1), 0);
      state = t ? cell(own, state) : cell(own, {esp::zeros({2, 4}), esp::zeros({2, 4})});
      outputs.push_back(state.h);
    }
    BOOST_TEST(difference(executor.run({{"x", in}}), stack(outputs, 0).value()) < 1e-6);
    BOOST_TEST(difference(run(in).value(), stack(outputs, 0).value()) < 1e-6);
  }
}

BOOST_AUTO_TEST_CASE(inference_goes_in_the_same_direction) {
  const Variable u = esp::parameter(numbers({4, 3}, -1, 1, 3), "u"),
                 w = esp::parameter(numbers({3, 3}, -1, 1, 4), "w");
  const auto run = [&](const Variable& xs) {
    return both(esp::scan(recurrence(u, w), {esp::zeros({2, 3}, esp::float64)}, {xs}, {.reverse = true}));
  };
  const Variable x = esp::placeholder("x", {5, 2, 4}, esp::float64);
  const esp::Executor executor = run(x).get_executor({.mode = esp::Mode::inference});
  const Tensor in = numbers({5, 2, 4});
  BOOST_TEST(difference(executor.run({{"x", in}}), run(in).value()) < 1e-14);
}

BOOST_AUTO_TEST_CASE(segments_keep_fewer_states) {
  const auto peak = [](int64_t segment) {
    const Variable w = esp::variable(numbers({64, 256}).to(esp::float32));
    const Tensor x = numbers({144, 1}).to(esp::float32), start = esp::zeros({64, 256});
    const int64_t before = esp::memory_stats().live_bytes;
    esp::reset_peak_memory();
    const esp::ScanResult r = esp::scan(
        [&](const Variables& s, const Variables& in) -> esp::ScanResult {
          return {{tanh(s[0] * w + in[0])}, {}};
        },
        {start}, {x}, {.segment = segment});
    const Variable y = sum(r.state[0]);
    (void)y.gradient(w).value();
    return esp::memory_stats().peak_bytes - before;
  };
  BOOST_TEST(2 * peak(12) < peak(0));
}

BOOST_AUTO_TEST_CASE(states_that_only_change_places) {
  const auto swapped = [](const Variable& x) {
    return esp::scan(
               [](const Variables& s, const Variables&) -> esp::ScanResult {
                 return {{s[1], s[0]}, {}};
               },
               {esp::tensor(1.0), esp::tensor(2.0)}, {x})
        .state[0];
  };
  const Variable x = esp::placeholder("x", {3});
  BOOST_TEST(swapped(esp::zeros({3})).item() == 2);
  BOOST_TEST(swapped(esp::zeros({4})).item() == 1);
  BOOST_TEST(swapped(x).get_executor().run({{"x", esp::zeros({3})}}).item() == 2);
}

BOOST_AUTO_TEST_CASE(states_that_change_places_and_integers) {
  // Fibonacci's numbers, with counters of int64 beside them.
  const Variable a = esp::tensor(0.0), b = esp::tensor(1.0), i = esp::tensor(int64_t{0});
  const esp::ScanResult r = esp::scan(
      [](const Variables& s, const Variables&) -> esp::ScanResult {
        return {{s[1], s[0] + s[1], s[2] + 1}, {s[0], s[2]}};
      },
      {a, b, i}, {esp::zeros({8})});
  BOOST_TEST(r.state[0].item() == 21);
  BOOST_TEST(r.state[2].value().item<int64_t>() == 8);
  const float expected[] = {0, 1, 1, 2, 3, 5, 8, 13};
  for (int64_t t = 0; t < 8; ++t) {
    BOOST_TEST(r.outputs[0].value().at<float>({t}) == expected[t]);
    BOOST_TEST(r.outputs[1].value().at<int64_t>({t}) == t);
  }
}

BOOST_AUTO_TEST_CASE(wrong_steps) {
  const Variable h = esp::zeros({2, 3}), x = esp::zeros({4, 2, 3});
  const auto with = [&](const esp::ScanStep& step) { return esp::scan(step, {h}, {x}); };
  using R = esp::ScanResult;
  BOOST_CHECK_THROW(with({}), esp::Error);
  BOOST_CHECK_THROW(with([](const Variables&, const Variables&) { return R{}; }), esp::Error);
  BOOST_CHECK_THROW(with([](const Variables& s, const Variables&) {
                      return R{{sum(s[0])}, {}};
                    }),
                    esp::ShapeError);
  BOOST_CHECK_THROW(with([](const Variables& s, const Variables&) {
                      return R{{cast(s[0], esp::float64)}, {}};
                    }),
                    esp::TypeError);
  BOOST_CHECK_THROW(with([](const Variables& s, const Variables&) {
                      return R{{esp::in_train_phase(s[0] * 2.0, [&] { return s[0]; })}, {}};
                    }),
                    esp::UnsupportedError);
  const auto same = [](const Variables& s, const Variables&) { return R{s, {}}; };
  BOOST_CHECK_THROW(esp::scan(same, {h}, {}), esp::Error);
  BOOST_CHECK_THROW(esp::scan(same, {h}, {x, esp::zeros({3})}), esp::ShapeError);
  BOOST_CHECK_THROW(esp::scan(same, {h}, {esp::tensor(1.0)}), esp::ShapeError);
  BOOST_CHECK_THROW(esp::scan(same, {h}, {x}, {.segment = -1}), esp::Error);
}

BOOST_AUTO_TEST_CASE(values_of_operands_are_not_there) {
  using R = esp::ScanResult;
  const Variable h = esp::zeros({2}), x = esp::ones({4, 2}), beside = esp::tensor(3.0);
  const auto refused = [&](const std::function<void(const Variable& s, const Variable& e)>& reads) {
    BOOST_CHECK_EXCEPTION(esp::scan(
                              [&](const Variables& s, const Variables& e) {
                                reads(s[0], e[0]);
                                return R{{s[0]}, {}};
                              },
                              {h}, {x}),
                          esp::UnsupportedError, says({"scan", "operand", "loop_test.cpp"}));
  };
  refused([](const Variable& s, const Variable&) { (void)s.value(); });
  refused([](const Variable&, const Variable& e) { (void)e.forward(); });
  refused([](const Variable& s, const Variable& e) { (void)sum(s + e).item(); });
  refused([](const Variable&, const Variable& e) {
    (void)esp::scan(
        [](const Variables& s, const Variables&) {
          return R{{s[0]}, {}};
        },
        {e}, {esp::ones({3})})
        .state[0]
        .value();
  });
  refused([](const Variable& s, const Variable&) { (void)cast(s, esp::int64).value(); });
  Variable leaked, leaf;
  const R r = esp::scan(
      [&](const Variables& s, const Variables& e) {
        leaf = e[0];
        leaked = s[0] * 2;
        return R{{s[0] + e[0] * beside.item()}, {}};  // other values are there
      },
      {h}, {x});
  BOOST_TEST(r.state[0].value().at<float>({1}) == 12);
  BOOST_CHECK_THROW((void)leaked.value(), esp::UnsupportedError);
  BOOST_CHECK_THROW((void)(leaked + 1).value(), esp::UnsupportedError);
  BOOST_CHECK_THROW((void)(leaf + 1).value(), esp::UnsupportedError);
}

BOOST_AUTO_TEST_CASE(what_has_no_scans_says_what_to_do) {
  const TemporaryFolder folder;
  for (const double rate : {0.0, 0.5}) {
    const Variable w = esp::parameter(numbers({3, 3}, -1, 1, 4), "w"),
                   x = esp::placeholder("x", {4, 5, 3}, esp::float64);
    const esp::ScanStep step = [&](const Variables& s, const Variables& e) -> esp::ScanResult {
      return {{tanh(matmul(dropout(e[0], rate) + s[0], w))}, {}};
    };
    const Variable steps = permute(x, {1, 0, 2});
    const Variable y = esp::scan(step, {zeros_like(squeeze(slice(steps, 0, 0, 1), 0))}, {steps}).state[0];
    const esp::Executor trainer = mean(square(y)).get_executor({.optimizer = esp::optim::Sgd(0.1)});
    if (rate == 0) {  // C code has no products of float64
      BOOST_CHECK_EXCEPTION((void)trainer.export_c(folder / "a.c"), esp::UnsupportedError,
                            says({"export_c", "'matmul'", "loop_test.cpp"}));
      continue;
    }
    BOOST_CHECK_EXCEPTION(
        (void)mean(square(y))
            .get_executor({.optimizer = esp::optim::Sgd(0.1), .devices = {esp::cpu(0), esp::cpu(1)}})
            .plan(),
        esp::UnsupportedError,
        says({"2 replicas", "'scan", "random numbers", "written out", "loop_test.cpp"}));
    BOOST_CHECK_EXCEPTION((void)trainer.export_c(folder / "a.c"), esp::UnsupportedError,
                          says({"export_c", "'scan", "random numbers", "written out", "loop_test.cpp"}));
  }
}

BOOST_AUTO_TEST_CASE(under_deferred_values_are_the_same) {
  const auto values = [](bool deferred) {
    esp::seed(4);
    const Variable w = esp::variable(numbers({3, 3}, -1, 1, 4)), x = esp::variable(numbers({6, 2, 3}));
    std::optional<esp::Deferred> scope;
    if (deferred) scope.emplace();
    const esp::ScanResult r = esp::scan(
        [&](const Variables& s, const Variables& e) -> esp::ScanResult {
          const Variable next = tanh(matmul(dropout(e[0], 0.3) + s[0], w));
          return {{next}, {next * rand_like(next)}};
        },
        {esp::dropout(esp::ones({2, 3}, esp::float64), 0.5)}, {x * 2.0});
    const Variable y = sum(r.state[0]) + sum(square(dropout(r.outputs[0], 0.5)));
    const Variable g = y.gradient(w);
    return esp::concat({esp::reshape(y, {1}), esp::reshape(g, {9})}, 0).value().clone();
  };
  BOOST_TEST(difference(values(true), values(false)) < 1e-13);
}

BOOST_AUTO_TEST_SUITE_END()
