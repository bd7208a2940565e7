// Conditional random fields: against all sequences of tags written out.
#include "espalier/nn/crf.h"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>

#include "espalier/core/check_gradient.h"
#include "espalier/core/error.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t batch = 4, steps = 4, tags = 3;

esp::nn::Crf field() {
  esp::seed(5);
  return esp::nn::Crf(tags, {.initializer = esp::nn::init::Uniform(-1, 1), .dtype = esp::float64});
}
Tensor emissions() { return numbers({batch, steps, tags}, -1, 1, 3); }
/// Whole, padded behind, with a gap and a later begin, and empty.
Tensor mask() {
  Tensor m = esp::ones({batch, steps}, esp::boolean);
  m.at<bool>({1, 3}) = m.at<bool>({2, 0}) = m.at<bool>({2, 2}) = false;
  for (int64_t t = 0; t < steps; ++t) m.at<bool>({3, t}) = false;
  return m;
}

/// Calls `f(tags, score)` with all sequences of tags of a row's steps that count.
void each_path(const esp::nn::Crf& crf, const Tensor& x, const Tensor& m, int64_t row,
               const std::function<void(const Index&, double)>& f) {
  const Tensor between = crf.parameter("transitions").value(), start = crf.parameter("start").value(),
               end = crf.parameter("end").value();
  Index on;
  for (int64_t t = 0; t < steps; ++t)
    if (m.at<bool>({row, t})) on.push_back(t);
  int64_t paths = 1;
  for (size_t i = 0; i < on.size(); ++i) paths *= tags;
  for (int64_t path = 0; path < paths; ++path) {
    Index own(steps, -1);
    double score = 0;
    int64_t rest = path, before = -1;
    for (const int64_t t : on) {
      const int64_t y = rest % tags;
      rest /= tags;
      own[static_cast<size_t>(t)] = y;
      score +=
          x.at<double>({row, t, y}) + (before < 0 ? start.at<double>({y}) : between.at<double>({before, y}));
      before = y;
    }
    if (before >= 0) score += end.at<double>({before});
    f(own, score);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(crf)

BOOST_AUTO_TEST_CASE(all_sequences_of_tags) {
  const esp::nn::Crf crf = field();
  const Tensor x = emissions();
  for (const bool masked : {false, true}) {
    const Tensor m = masked ? mask() : esp::ones({batch, steps}, esp::boolean);
    const Variable given = masked ? Variable(m) : Variable();
    Tensor labels = esp::zeros({batch, steps}, esp::int64);
    for (int64_t i = 0; i < batch * steps; ++i)
      labels.at<int64_t>({i / steps, i % steps}) =
          m.at<bool>({i / steps, i % steps}) ? (5 * i + 2) % tags : 77;
    const Tensor likelihood = crf.log_likelihood(x, labels, given).value(),
                 best = crf.decode(x, given).value(), shares = crf.marginals(x, given).value();
    BOOST_TEST(best.dtype() == esp::int64);
    for (int64_t row = 0; row < batch; ++row) {
      double sum = 0, own = 0, highest = -INFINITY;
      Index expected;
      Tensor parts = esp::zeros({steps, tags}, esp::float64);
      each_path(crf, x, m, row, [&](const Index& path, double score) {
        sum += std::exp(score);
        if (score > highest) highest = score, expected = path;
        bool same = true;
        for (int64_t t = 0; t < steps; ++t) {
          const int64_t y = path[static_cast<size_t>(t)];
          if (y < 0) continue;
          same &= y == labels.at<int64_t>({row, t});
          parts.at<double>({t, y}) += std::exp(score);
        }
        if (same) own = score;
      });
      BOOST_TEST(std::abs(likelihood.at<double>({row}) - (own - std::log(sum))) < 1e-12);
      for (int64_t t = 0; t < steps; ++t) {
        BOOST_TEST(best.at<int64_t>({row, t}) == expected[static_cast<size_t>(t)]);
        for (int64_t y = 0; y < tags; ++y)
          BOOST_TEST(std::abs(shares.at<double>({row, t, y}) - parts.at<double>({t, y}) / sum) < 1e-12);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(marginals_are_the_gradient_and_gradients_are_right) {
  const esp::nn::Crf crf = field();
  const Tensor labels = esp::zeros({batch, steps}, esp::int64);
  const Variable x = esp::variable(emissions());
  const Variable likelihood = crf.log_likelihood(x, labels, mask());
  Tensor expected = (-crf.marginals(x, mask())).value().clone();
  for (int64_t i = 0; i < batch * steps; ++i)
    if (mask().at<bool>({i / steps, i % steps})) expected.at<double>({i / steps, i % steps, 0}) += 1;
  BOOST_TEST(difference(likelihood.gradient(x).value(), expected) < 1e-12);
  const auto f = [&](const Variables& in) { return crf.log_likelihood(in[0], labels, mask()); };
  const esp::CheckResult result = esp::check_gradient(f, {emissions()}, {.order = 2});
  BOOST_TEST(result.passed, result.message);
  BOOST_TEST(likelihood.gradient(crf.parameter("transitions")).shape() == (esp::Shape{tags, tags}));
}

BOOST_AUTO_TEST_CASE(trains_alike_eagerly_and_in_plans_and_decodes_in_plans) {
  const auto train = [](bool plan) {
    const esp::nn::Crf crf = field();
    Tensor labels = esp::zeros({8, steps}, esp::int64);
    for (int64_t i = 0; i < 8 * steps; ++i) labels.at<int64_t>({i / steps, i % steps}) = i * i % tags;
    esp::data::Distributor feed({numbers({8, steps, tags}), labels}, {.batch_size = 4});
    const auto [x, y] = feed.get_output_graphs<2>();
    const Variable loss = -mean(crf.log_likelihood(x, y));
    if (plan) {
      (void)loss.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(0.5)})
          .execute({.epochs = 1, .progress = false});
    } else {
      for (int i = 0; i < 2; ++i) loss.forward().update(esp::optim::Sgd(0.5));
    }
    return crf.parameter("transitions").value().clone();
  };
  BOOST_TEST(difference(train(true), train(false)) < 1e-12);
  const esp::nn::Crf crf = field();
  const Variable x = esp::placeholder("x", {-1, steps, tags}, esp::float64);
  const Tensor tagged = crf(x).get_executor({.mode = esp::Mode::inference}).run({{"x", emissions()}});
  BOOST_TEST(difference(tagged, crf(emissions()).value()) == 0);
}

BOOST_AUTO_TEST_CASE(steps_may_be_an_open_axis) {
  const esp::nn::Crf crf = field();
  const Variable x = esp::placeholder("x", {-1, -1, tags}, esp::float64),
                 m = esp::placeholder("m", {-1, -1}, esp::boolean),
                 y = esp::placeholder("y", {-1, -1}, esp::int64);
  const auto frozen = [](const Variable& v) { return v.get_executor({.mode = esp::Mode::inference}); };
  const Variable likelihood = crf.log_likelihood(x, y, m);
  const esp::Executor decoded = frozen(crf.decode(x, m)), shares = frozen(crf.marginals(x, m)),
                      likely = frozen(likelihood), slope = frozen(sum(likelihood).gradient(x));
  for (const int64_t count : {steps, int64_t{1}, int64_t{2}}) {
    const Variable in = esp::variable(emissions().slice(1, 0, count).contiguous_copy());
    const Tensor kept = mask().slice(1, 0, count).contiguous_copy(),
                 labels = esp::full({batch, count}, int64_t{2}, esp::int64);
    const std::map<std::string, Tensor> batch_of{{"x", in.value()}, {"m", kept}, {"y", labels}};
    const auto run = [&](const esp::Executor& plan, bool labelled) {
      auto inputs = batch_of;
      if (!labelled) inputs.erase("y");
      return plan.run({inputs.begin(), inputs.end()});
    };
    BOOST_TEST(difference(run(decoded, false), crf.decode(in, kept).value()) == 0);
    BOOST_TEST(difference(run(shares, false), crf.marginals(in, kept).value()) < 1e-14);
    const Variable eager = crf.log_likelihood(in, labels, kept);
    BOOST_TEST(difference(run(likely, true), eager.value()) < 1e-14);
    BOOST_TEST(difference(run(slope, true), sum(eager).gradient(in).value()) < 1e-14);
  }
  BOOST_CHECK_EXCEPTION((void)frozen(crf(x)).run({{"x", esp::ones({2, 0, tags}, esp::float64)}}),
                        esp::ShapeError, says({"Crf", "0 steps", "crf_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(wrong_operands) {
  const esp::nn::Crf crf = field();
  const Tensor x = emissions(), labels = esp::zeros({batch, steps}, esp::int64);
  BOOST_CHECK_THROW(esp::nn::Crf(0), esp::Error);
  BOOST_CHECK_THROW(crf(esp::zeros({2, 3}, esp::float64)), esp::ShapeError);
  BOOST_CHECK_THROW(crf(esp::zeros({2, 3, 4}, esp::float64)), esp::ShapeError);
  BOOST_CHECK_THROW(crf(esp::zeros({2, 0, 3}, esp::float64)), esp::ShapeError);
  BOOST_CHECK_THROW(crf(x.to(esp::float32)), esp::TypeError);
  BOOST_CHECK_THROW(crf.decode(x, labels), esp::TypeError);
  BOOST_CHECK_THROW(crf.decode(x, esp::ones({batch, 2}, esp::boolean)), esp::ShapeError);
  BOOST_CHECK_THROW(crf.log_likelihood(x, x), esp::TypeError);
  BOOST_CHECK_THROW(crf.log_likelihood(x, esp::zeros({batch}, esp::int64)), esp::ShapeError);
  for (const int64_t wrong : {tags, int64_t{-1}}) try {
      (void)crf.log_likelihood(x, esp::full({batch, steps}, wrong, esp::int64)).value();
      BOOST_ERROR("a tag that is none is accepted");
    } catch (const esp::IndexError& error) {
      BOOST_TEST(std::string(error.what()).find("Crf") != std::string::npos);
    }
}

BOOST_AUTO_TEST_SUITE_END()
