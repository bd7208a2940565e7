// Random numbers of further distributions: their moments, and the same ones eagerly, in plans and on
// replicas.
#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <set>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/sampling.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/sampling.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;
using esp::Variable;

namespace {

struct Moments {
  double mean = 0, variance = 0;
  explicit Moments(const Variable& v) {
    const Tensor x = v.value().to(esp::cpu()).to(esp::float64);
    const auto n = static_cast<double>(x.elements());
    for (const double value : x.span<double>()) mean += value / n;
    for (const double value : x.span<double>()) variance += (value - mean) * (value - mean) / n;
  }
};

constexpr int64_t many = 40'000;

void check_moments(const Variable& v, double mean, double variance) {
  const Moments found(v);
  BOOST_TEST(std::abs(found.mean - mean) < 6 * std::sqrt(variance / static_cast<double>(many)));
  BOOST_TEST(std::abs(found.variance / variance - 1) < 0.12);
}

Variable all(double value, esp::DType dtype = esp::float64) {
  return esp::broadcast_to(Variable(esp::full({}, value, dtype)), {many});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sampling)

/// Runs of a stream are those of a stream that is drawn whole.
BOOST_AUTO_TEST_CASE(runs_of_a_stream) {
  const auto drawn = [](const Variable& like, const esp::RandomStream& random) {
    const esp::Op& op = like.node()->op();
    Tensor in = esp::full({1000}, 2.5, esp::float64), out({1000}, like.dtype());
    esp::KernelCall call;
    call.inputs.push_back(&in);
    call.outputs.push_back(&out);
    call.random = random;
    op.run_cpu(call);
    return out.to(esp::float64);
  };
  const Tensor x = esp::full({2}, 2.5, esp::float64);
  for (const Variable& like : {esp::randint_like(x, -1'000'000, 1'000'000), esp::poisson(x), esp::gamma(x)}) {
    const esp::RandomStream whole{.seed = 3, .stream = 4};
    const Tensor all = drawn(like, whole);
    for (const auto& [first, run, stride] :
         std::vector<std::array<int64_t, 3>>{{500, 0, 0}, {0, 7, 13}, {100, 130, 150}, {3, 300, 400}}) {
      esp::RandomStream window = whole;
      window.first = first;
      window.run = run;
      window.stride = stride;
      const Tensor some = drawn(like, window);
      for (int64_t e = 0; e < 1000; ++e) {
        const int64_t at = first + (run ? e / run * stride + e % run : e);
        if (at < 1000) BOOST_REQUIRE(some.at<double>({e}) == all.at<double>({at}));
      }
    }
  }
}

// Values are random: what is checked is that all ways of computing agree, with x + 0 · drawn.
BOOST_AUTO_TEST_CASE(the_table_of_ops) {
  const auto same = [](const std::vector<Array>& in) { return in[0]; };
  const std::vector<std::pair<std::string, std::function<Variable(const Variable&)>>> draws{
      {"exponential_like", [](const Variable& x) { return esp::exponential_like(x); }},
      {"truncated_normal_like", [](const Variable& x) { return esp::truncated_normal_like(x, -1, 3); }},
      {"randint_like", [](const Variable& x) { return esp::cast(esp::randint_like(x, -5, 5), x.dtype()); }},
      {"poisson", [](const Variable& x) { return esp::poisson(esp::square(x)); }},
      {"gamma", [](const Variable& x) { return esp::gamma(esp::square(x) + 0.5); }}};
  for (const auto& [name, draw] : draws)
    for (const Shape& shape : {Shape{3, 4}, Shape{}, Shape{0, 2}})
      check_op({name, [&](const Variables& x) { return x[0] + draw(x[0]) * 0.0; }, {numbers(shape)}, same});
  // What is certain is known.
  Tensor certain({5, 3}, esp::float64), wide({5, 3}, esp::float64);
  for (int64_t i = 0; i < 15; ++i) {
    certain.span<double>()[static_cast<size_t>(i)] = i % 3 == i / 3 % 3;
    wide.span<double>()[static_cast<size_t>(i)] = i % 3 == i / 3 % 3 ? 0 : -1000;
  }
  const auto position = [](const std::vector<Array>& in) {
    return Array({5}, [&](const Index& i) {
      int64_t best = 0;
      for (int64_t k = 0; k < 3; ++k)
        if (in[0]({i[0], k}) > in[0]({i[0], best})) best = k;
      return static_cast<double>(best);
    });
  };
  BOOST_TEST(difference(position({Array(certain)}), esp::squeeze(esp::multinomial(certain, 1), -1).value()) ==
             0);
  BOOST_TEST(difference(position({Array(wide)}), esp::categorical(wide).value()) == 0);
  check_op({"multinomial",
            [](const Variables& x) {
              const Variable drawn = esp::multinomial(esp::exp(x[0]), 2);
              return x[0] + esp::sum(esp::cast(drawn, x[0].dtype()), -1, true) * 0.0;
            },
            {numbers({3, 4})},
            same});
  check_op({"categorical",
            [](const Variables& x) {
              return x[0] + esp::unsqueeze(esp::cast(esp::categorical(x[0]), x[0].dtype()), -1) * 0.0;
            },
            {numbers({3, 4})},
            same});
}

BOOST_AUTO_TEST_CASE(moments) {
  esp::seed(12);
  for (const esp::DType dtype : {esp::float32, esp::float64}) {
    check_moments(esp::exponential_like(all(0, dtype)), 1, 1);
    for (const double mean : {0.3, 4.0, 9.99, 10.0, 35.0, 1000.0})
      check_moments(esp::poisson(all(mean, dtype)), mean, mean);
    for (const double shape : {0.2, 1.0, 3.5, 50.0})
      check_moments(esp::gamma(all(shape, dtype)), shape, shape);
    check_moments(esp::truncated_normal_like(all(0, dtype), -INFINITY, INFINITY), 0, 1);
    // E x = (φ(a) − φ(b)) / Z of the interval [a, b].
    const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); };
    const double a = 0.5, b = 2, z = 0.5 * (std::erfc(a / M_SQRT2) - std::erfc(b / M_SQRT2));
    const double mean = (density(a) - density(b)) / z,
                 variance = 1 + (a * density(a) - b * density(b)) / z - mean * mean;
    check_moments(esp::truncated_normal_like(all(0, dtype), a, b), mean, variance);
    check_moments(esp::cast(esp::randint_like(all(0, dtype), 10, 20), dtype), 14.5, 99 / 12.0);
  }
  BOOST_TEST(esp::max(esp::poisson(all(0))).item() == 0);
  const Variable far = esp::truncated_normal_like(all(0), 9, 10);  // where digits are few
  BOOST_TEST(esp::min(far).item() >= 9);
  BOOST_TEST(esp::max(far).item() <= 10);
  BOOST_TEST(esp::max(far).item() - esp::min(far).item() > 0.3);
  BOOST_TEST(esp::min(esp::exponential_like(all(0, esp::float32))).item() > 0);
}

BOOST_AUTO_TEST_CASE(quantiles_are_those_of_the_normal_distribution) {
  for (double x = -8; x <= 5; x += 0.01) {
    const double p = 0.5 * std::erfc(-x / M_SQRT2);
    BOOST_TEST(std::abs(esp::sampling::normal_quantile(p) - x) < 1e-9);
  }
  double sum = 0;
  for (int k = 1; k < 40; ++k)
    BOOST_TEST(std::abs(esp::sampling::log_factorial(k) - (sum += std::log(k))) < 1e-11);
}

BOOST_AUTO_TEST_CASE(classes_have_their_probabilities) {
  esp::seed(3);
  const Tensor weights = esp::tensor({1.0, 0.0, 5.0, 2.0}, esp::float64);
  const auto counts = [](const Variable& drawn) {
    std::vector<double> result(4);
    for (const int64_t k : drawn.value().span<int64_t>()) result[static_cast<size_t>(k)] += 1.0 / many;
    return result;
  };
  const std::vector<double> expected{0.125, 0, 0.625, 0.25};
  for (const Variable& drawn : {esp::multinomial(weights, many, true),
                                esp::categorical(esp::broadcast_to(esp::log(weights), {many, 4})),
                                esp::multinomial(esp::broadcast_to(Variable(weights), {many, 4}), 1)}) {
    const std::vector<double> found = counts(drawn);
    for (size_t k = 0; k < 4; ++k) BOOST_TEST(std::abs(found[k] - expected[k]) < 0.02);
    BOOST_TEST(found[1] == 0);
  }
  // The second of two different ones: P(k) = Σ P(first) P(k) / (1 − P(first)).
  const Tensor both = esp::multinomial(esp::broadcast_to(Variable(weights), {many, 4}), 2).value();
  double two_then_zero = 0;
  for (int64_t i = 0; i < many; ++i) {
    const int64_t first = both.at<int64_t>({i, 0}), second = both.at<int64_t>({i, 1});
    BOOST_REQUIRE(first != second);
    two_then_zero += (first == 2 && second == 0) / static_cast<double>(many);
  }
  BOOST_TEST(std::abs(two_then_zero - 0.625 * 0.125 / 0.375) < 0.01);
  const Tensor order = esp::multinomial(esp::ones({100}), 100).value();
  std::set<int64_t> seen(order.span<int64_t>().begin(), order.span<int64_t>().end());
  BOOST_TEST(seen.size() == 100u);
}

BOOST_AUTO_TEST_CASE(no_gradient_passes) {
  const Variable a = esp::variable(numbers({4}, 0.5, 2));
  for (const Variable& v :
       {esp::poisson(a), esp::gamma(a), esp::exponential_like(a), esp::truncated_normal_like(a)})
    BOOST_TEST(difference(esp::zeros({4}, esp::float64), esp::sum(v * 2.0).gradient(a).value()) == 0);
}

BOOST_AUTO_TEST_CASE(wrong_parameters_are_refused) {
  for (const double bad : {-0.5, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    const auto x = esp::tensor({0.5, bad}, esp::float64);
    BOOST_CHECK_EXCEPTION(esp::poisson(x), esp::Error, says({"poisson", here()}));
    BOOST_CHECK_EXCEPTION(esp::gamma(x), esp::Error, says({"gamma", here()}));
    BOOST_CHECK_EXCEPTION(esp::multinomial(x, 1), esp::Error, says({"multinomial", "no weight", here()}));
  }
  BOOST_CHECK_EXCEPTION(esp::gamma(0.0f), esp::Error, says({"gamma", "0", here()}));
  const Variable x = esp::ones({3}), k = esp::arange(3, esp::int64);
  BOOST_CHECK_EXCEPTION(esp::multinomial(x, 4), esp::ShapeError, says({"multinomial", "4", "[3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::multinomial(esp::zeros({2, 3}), 1, true), esp::Error, says({"row 0", here()}));
  BOOST_CHECK_EXCEPTION(esp::multinomial(esp::tensor({1.0f, 0.0f}), 2), esp::Error,
                        says({"2 positions", "1 positive", here()}));
  BOOST_CHECK_EXCEPTION(esp::multinomial(1.0f, 1), esp::ShapeError, says({"scalar", here()}));
  BOOST_CHECK_EXCEPTION(esp::categorical(1.0f), esp::ShapeError, says({"categorical", here()}));
  BOOST_CHECK_EXCEPTION(esp::categorical(esp::ones({2, 0})), esp::ShapeError,
                        says({"categorical", "[2, 0]", "no class", here()}));
  BOOST_TEST(esp::categorical(esp::ones({0, 2})).shape() == esp::Shape({0}));
  BOOST_CHECK_EXCEPTION(esp::truncated_normal_like(x, 2, 1), esp::Error, says({"from 2 to 1", here()}));
  BOOST_CHECK_EXCEPTION(esp::truncated_normal_like(x, 50, 60), esp::Error, says({"no probability", here()}));
  BOOST_CHECK_EXCEPTION(esp::randint_like(x, 3, 3), esp::Error, says({"randint_like", here()}));
  for (const auto& draw : {esp::poisson, esp::gamma, esp::exponential_like, esp::categorical})
    BOOST_CHECK_THROW(draw(k), esp::TypeError);
  BOOST_CHECK_EXCEPTION(esp::truncated_normal_like(k), esp::TypeError, says({"int64", here()}));
}

// The rows of a batch have the same numbers wherever they are drawn; each step draws anew.
BOOST_AUTO_TEST_CASE(steps_eagerly_in_plans_and_on_replicas) {
  const auto run = [&](bool planned, std::vector<esp::Device> devices = {}) {
    esp::seed(21);
    const esp::data::Distributor feed({numbers({11, 3}, 0.5, 4)}, {.batch_size = 4});
    const Variable w = esp::parameter(esp::ones({3}, esp::float64)), x = feed.get_output_graphs()[0];
    const auto real = [](const Variable& v) { return esp::cast(v, esp::float64); };
    const Variable drawn = esp::poisson(x) + esp::gamma(x) * 2.0 + esp::exponential_like(x) * 3.0 +
                           esp::truncated_normal_like(x) + real(esp::randint_like(x, 0, 100)) +
                           real(esp::multinomial(x, 3)) + real(esp::multinomial(x, 3, true)) +
                           esp::unsqueeze(real(esp::categorical(x)), -1);
    const Variable loss = esp::mean(drawn * w);
    const esp::optim::Sgd sgd(0.1);
    if (planned) {
      loss.get_executor({.optimizer = sgd, .devices = std::move(devices)}).execute({.progress = false});
    } else {
      for (int64_t step = 0; step < feed.steps(); ++step) loss.forward().update(sgd);
    }
    return w.value();
  };
  const Tensor eager = run(false);
  BOOST_TEST(difference(eager, run(false)) == 0);
  BOOST_TEST(difference(eager, run(true)) < 1e-12);
  BOOST_TEST(difference(eager, run(true, {esp::cpu(), esp::cpu()})) < 1e-12);
  for (const esp::Device device : gpus_to_test()) BOOST_TEST(difference(eager, run(true, {device})) < 1e-9);
}

BOOST_AUTO_TEST_SUITE_END()
