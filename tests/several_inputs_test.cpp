// fit, predict, evaluate and summary of nets of several inputs, and running statistics computed anew.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/executor/kit/fit.h"
#include "espalier/executor/kit/running_statistics.h"
#include "espalier/executor/kit/summary.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/losses.h"
#include "espalier/nn/multi_head_attention.h"
#include "espalier/nn/recurrent.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable;

namespace {

/// Numbers and a label are read together.
struct TwoTowers : esp::nn::Module {
  Variable operator()(const Variable& a, const Variable& b) const {
    return out(esp::concat({left(a), esp::tanh(right(b))}, 1));
  }
  esp::nn::Dense left = add("left", esp::nn::Dense(4));
  esp::nn::Embedding right = add("right", esp::nn::Embedding(3, 4));
  esp::nn::Dense out = add("out", esp::nn::Dense(1));
};

struct Task {
  esp::Tensor a = numbers({64, 5}, -1, 1).to(esp::float32),
              b = esp::cast(esp::floor(numbers({64}, 0, 3, 5)), esp::int64).value(),
              y = (esp::sum(a, 1, true) + esp::unsqueeze(esp::cast(b, esp::float32), 1)).value();
};

}  // namespace

BOOST_AUTO_TEST_SUITE(several_inputs)

BOOST_AUTO_TEST_CASE(nets_of_two_inputs) {
  esp::seed(1);
  const Task t;
  const TwoTowers net;
  const esp::nn::MeanSquared loss;
  const esp::FitOptions options{
      .optimizer = esp::optim::Adam({.lr = 2e-2}),
      .epochs = 40,
      .batch_size = 16,
      .validation = {t.a, t.b, t.y},
      .metrics = {{"error", [](const Variable& p, const Variable& y) { return esp::mean(esp::abs(p - y)); }}},
      .progress = false};
  const esp::History history = esp::fit(net, loss, {t.a, t.b, t.y}, options);
  const double end = history.epochs.back().loss_mean;
  BOOST_TEST(end < 0.1 * history.epochs.front().loss_mean);

  const esp::EpochRecord record = esp::evaluate(net, loss, {t.a, t.b, t.y}, {.batch_size = 64});
  const esp::Tensor made = net(t.a, t.b).value();
  BOOST_TEST(record.loss_mean == loss(made, t.y).item(), boost::test_tools::tolerance(1e-5));
  // With or without the target.
  BOOST_TEST(difference(esp::predict(net, {t.a, t.b, t.y}, {.batch_size = 10}), made) < 1e-6);
  BOOST_TEST(difference(esp::predict(net, {t.a, t.b}, {.batch_size = 10}), made) < 1e-6);
  BOOST_CHECK_EXCEPTION(esp::fit(net, loss, {t.a, t.y}), esp::DataError,
                        says({"fit", "2 columns", "called with 2 Variables", here()}));
  BOOST_CHECK_EXCEPTION(esp::predict(net, {t.a}), esp::DataError, says({"predict", "1 column;", here()}));
  BOOST_CHECK_EXCEPTION(esp::evaluate(net, loss, {t.a, t.b, t.a, t.y}), esp::DataError,
                        says({"evaluate", "4 columns", here()}));
}

BOOST_AUTO_TEST_CASE(nets_of_one_or_more_inputs) {
  const esp::Tensor q = numbers({8, 3, 4}, -1, 1).to(esp::float32),
                    k = numbers({8, 5, 4}, -1, 1, 2).to(esp::float32);
  const esp::nn::MultiHeadAttention attention(4, 2);  // of one or three
  BOOST_TEST(difference(esp::predict(attention, {q, k, k}), attention(q, k, k).value()) < 1e-6);
  BOOST_TEST(difference(esp::predict(attention, {q, q}), attention(q).value()) < 1e-6);
  BOOST_TEST(difference(esp::predict(attention, q), attention(q).value()) < 1e-6);
  BOOST_CHECK_EXCEPTION(esp::fit(attention, esp::nn::MeanSquared(), {q, k, q}), esp::DataError,
                        says({"called with 1 or 3 Variables", here()}));
  const esp::nn::Lstm lstm(4, 2);  // whose own call gives states, too
  BOOST_TEST(esp::predict(lstm, q, {.batch_size = 8}).shape() == esp::Shape({8, 3, 2}));
}

BOOST_AUTO_TEST_CASE(a_summary_of_two_inputs) {
  const esp::ModuleSummary summary = esp::summary(TwoTowers(), {{esp::float32, {2, 5}}, {esp::int64, {2}}});
  BOOST_TEST(summary.output == esp::Shape({2, 1}));
  BOOST_TEST(summary.layers.size() == 3u);
  BOOST_TEST(summary.parameters == 24 + 12 + 9);
  std::ostringstream text;
  text << summary;
  BOOST_TEST(text.str().find("input [2, 5], [2], output [2, 1]") != std::string::npos);
  BOOST_CHECK_EXCEPTION(esp::summary(TwoTowers(), {{esp::float32, {2, 5}}}), esp::Error,
                        says({"summary", "1 Variable", here()}));
}

BOOST_AUTO_TEST_CASE(statistics_are_computed_anew) {
  const esp::Tensor x = numbers({48, 3}, -2, 5).to(esp::float32);
  esp::nn::Sequential net{esp::nn::BatchNorm(3), esp::nn::Sequential{esp::nn::BatchNorm({.momentum = 0.3})}};
  (void)net(esp::full({4, 3}, 100) * esp::rand({4, 3}));
  const Variable weight = net.parameter("0.weight");
  esp::set_value(weight, esp::full({3}, 2));
  net.train(false);
  esp::update_running_statistics(net, {x}, {.batch_size = 16, .shuffle = false});
  BOOST_TEST(!net.training());
  esp::Tensor means = esp::zeros({3}), variances = esp::zeros({3});
  for (int64_t i = 0; i < 48; i += 16) {
    const esp::Tensor part = x.slice(0, i, i + 16);
    means = (means + esp::mean(part, 0) / 3.0).value();
    variances = (variances + esp::var(part, 0) / 3.0).value();
  }
  BOOST_TEST(difference(net.buffer("0.running_mean").value(), means) < 1e-5);
  BOOST_TEST(difference(net.buffer("0.running_var").value(), variances) < 1e-4);
  BOOST_TEST(net.buffer("0.num_batches_tracked").item() == 3);
  // The second one sees batches normalized to a deviation of 2.
  BOOST_TEST(difference(net.buffer("1.0.running_mean").value(), esp::zeros({3})) < 1e-5);
  BOOST_TEST(net.buffer("1.0.running_var").value().at<float>({0}) == 4.0f * 16 / 15,
             boost::test_tools::tolerance(1e-3f));

  // The momentum is again what it was.
  net.train();
  const esp::Tensor before = net.buffer("0.running_mean").value().clone();
  (void)net(x);
  BOOST_TEST(difference(net.buffer("0.running_mean").value(),
                        (before * 0.9 + esp::mean(x, 0) * 0.1).value()) < 1e-5);
}

BOOST_AUTO_TEST_CASE(statistics_stay_if_it_throws) {
  const esp::nn::Sequential net{esp::nn::BatchNorm(3)};
  (void)net(numbers({8, 3}, 0, 9).to(esp::float32));
  const esp::Tensor before = net.buffer("0.running_mean").value().clone();
  // The last batch has one row, which has no variance.
  BOOST_CHECK_EXCEPTION(
      esp::update_running_statistics(net, {numbers({9, 3}).to(esp::float32)}, {.batch_size = 8}),
      esp::ShapeError, says({"BatchNorm", here()}));
  BOOST_TEST(difference(net.buffer("0.running_mean").value(), before) == 0);
  BOOST_TEST(net.buffer("0.num_batches_tracked").item() == 1);
  BOOST_TEST(net.training());
}

BOOST_AUTO_TEST_SUITE_END()
