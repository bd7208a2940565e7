// fit, predict and evaluate, against the same programs written by hand.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/views/padded.h"
#include "espalier/executor/kit/confusion_matrix.h"
#include "espalier/executor/kit/early_stopping.h"
#include "espalier/executor/kit/fit.h"
#include "espalier/executor/kit/metrics.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/lambda.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/functions/metrics.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// Whether the sum of a row is positive.
struct Task {
  esp::Tensor x = numbers({70, 8}, -1, 1).to(esp::float32),
              y = esp::cast(esp::greater(esp::sum(x, {1}), 0.0f), esp::int64).value();
};

esp::nn::Sequential make_net() {
  esp::seed(3);
  return esp::nn::Sequential{esp::nn::Dense(16), esp::nn::Relu(), esp::nn::Dense(2)};
}

/// A module of one's own, whose call is not const.
struct Line : esp::nn::Module {
  esp::nn::Dense layer = add("layer", esp::nn::Dense(1));
  esp::Variable operator()(const esp::Variable& x) { return layer(x); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(fit)

BOOST_AUTO_TEST_CASE(fit_does_what_is_written_by_hand) {
  const Task t;
  const esp::nn::Sequential net = make_net(), other = make_net();
  const esp::History fitted = esp::fit(net, esp::nn::SoftmaxCrossEntropy(), {t.x, t.y},
                                       {.optimizer = esp::optim::Adam({.lr = 1e-2}),
                                        .epochs = 3,
                                        .batch_size = 16,
                                        .validation = {t.x, t.y},
                                        .metrics = {{"accuracy", esp::accuracy}},
                                        .progress = false});
  esp::seed(3);
  const esp::data::Distributor feed({t.x, t.y}, {.batch_size = 16, .shuffle = true}),
      held_out({t.x, t.y}, {.batch_size = 16});
  const auto in = feed.get_output_graphs();
  const esp::Variable logits = other(in[0]);
  const esp::History by_hand = esp::nn::SoftmaxCrossEntropy()(logits, in[1])
                                   .get_executor({.optimizer = esp::optim::Adam({.lr = 1e-2}),
                                                  .validation = held_out,
                                                  .outputs = {{"accuracy", esp::accuracy(logits, in[1])}}})
                                   .execute({.epochs = 3, .progress = false});
  BOOST_TEST_REQUIRE(fitted.epochs.size() == 3u);
  for (size_t e = 0; e < 3; ++e) {
    BOOST_TEST(fitted.epochs[e].loss_mean == by_hand.epochs[e].loss_mean);
    BOOST_TEST(fitted.epochs[e].validation_loss == by_hand.epochs[e].validation_loss);
    BOOST_TEST(fitted.epochs[e].outputs.at("accuracy") == by_hand.epochs[e].outputs.at("accuracy"));
  }
  for (const auto& [path, parameter] : net.parameters())
    BOOST_TEST(difference(parameter.value(), other.parameter(path).value()) == 0, path);
}

BOOST_AUTO_TEST_CASE(predictions_are_those_of_all_rows_at_once) {
  const Task t;
  const esp::nn::Sequential net = make_net();
  const esp::Tensor whole = net(t.x).value();
  for (const int64_t size : {1, 16, 70, 1000})
    BOOST_TEST(difference(whole, esp::predict(net, t.x, {.batch_size = size})) < 1e-6);
  BOOST_TEST((esp::predict(net, t.x.slice(0, 0, 0)).shape() == esp::Shape{0, 2}));
  const esp::Tensor classes = esp::argmax(esp::predict(net, t.x), 1).value();
  BOOST_TEST(std::abs(esp::ConfusionMatrix(classes, t.y, 2).accuracy() -
                      esp::accuracy(esp::predict(net, t.x), t.y).item()) < 1e-12);
  BOOST_CHECK_EXCEPTION(esp::predict(net, esp::tensor(1.0f)), esp::ShapeError, says({"scalar", here()}));
  BOOST_CHECK_EXCEPTION(esp::predict(net, t.x, {.batch_size = 0}), esp::Error, says({"0 rows", here()}));
  BOOST_CHECK_EXCEPTION(esp::predict(net, esp::ones({4, 3})), esp::ShapeError, says({"Dense", here()}));
  BOOST_CHECK_EXCEPTION(esp::predict(net, esp::Tensor()), esp::Error, says({"undefined", here()}));
}

BOOST_AUTO_TEST_CASE(predictions_of_datasets) {
  const Task t;
  const esp::nn::Sequential net = make_net();
  const esp::Tensor whole = net(t.x).value();
  const auto both = std::make_shared<esp::data::TensorDataset>(std::vector{t.x, t.y});
  const std::shared_ptr<const esp::data::Dataset> samples =
      std::make_shared<esp::data::TensorDataset>(std::vector{t.x});
  for (const int64_t size : {1, 16, 70, 1000}) {
    BOOST_TEST(difference(whole, esp::predict(net, both, {.batch_size = size})) < 1e-6);
    BOOST_TEST(difference(whole, esp::predict(net, samples, {.batch_size = size})) < 1e-6);
    BOOST_TEST(difference(whole, esp::predict(net, {t.x, t.y}, {.batch_size = size})) < 1e-6);
  }
  const esp::data::Distributor shuffled({t.x}, {.batch_size = 16, .shuffle = true, .drop_remainder = true});
  const esp::Tensor first = shuffled.feed()->batch(0, 0)[0], made = esp::predict(net, shuffled);
  BOOST_TEST((made.shape() == esp::Shape{64, 2}));
  BOOST_TEST(difference(net(first).value(), made.slice(0, 0, 16)) < 1e-6);
  BOOST_TEST(shuffled.feed()->epoch() == 1);

  const esp::nn::Lambda twice([](const esp::Variable& x) { return 2 * x; });
  const esp::data::DatasetPtr ragged = esp::data::padded({{esp::ones({2}), esp::ones({2}), esp::ones({5})}});
  BOOST_TEST(esp::sum(esp::predict(twice, ragged)).item() == 18);
  BOOST_CHECK_EXCEPTION(esp::predict(twice, ragged, {.batch_size = 2}), esp::ShapeError,
                        says({"[1, 5] of rows 2 to 2", "[2, 2] of all before", here()}));
  BOOST_CHECK_EXCEPTION(esp::predict(net, both, {.batch_size = 0}), esp::Error, says({"0 rows", here()}));
  BOOST_CHECK_EXCEPTION(esp::predict(net, {t.x, t.y, t.y}), esp::DataError, says({"3 columns", here()}));
}

/// Also of modules that are no parts of the net, and of what they call themselves.
BOOST_AUTO_TEST_CASE(predictions_are_those_of_inference_whatever_is_called) {
  const esp::nn::Dropout dropout(0.5);
  const esp::nn::BatchNorm norm(4);
  const esp::nn::Lambda net(
      [dropout, norm](const esp::Variable& x) { return esp::dropout(norm(dropout(x)), 0.5); });
  const esp::Tensor x = numbers({6, 4}, 1, 3).to(esp::float32), y = esp::predict(net, x);
  BOOST_TEST(difference(y, x) < 1e-4);  // of a mean of 0 and a variance of 1
  BOOST_TEST(difference(esp::predict(net, x.slice(0, 0, 1)), y.slice(0, 0, 1)) == 0);
  BOOST_TEST(difference(esp::predict(net, esp::data::Distributor({x}, {.batch_size = 4})), y) == 0);
  BOOST_TEST(esp::evaluate(net, esp::nn::MeanSquared(), {x, y}).loss_mean < 1e-9);
  BOOST_TEST(norm.buffer("num_batches_tracked").value().item() == 0);
  BOOST_TEST((dropout.training() && norm.training()));
  BOOST_TEST(difference(net(x).value(), y) > 0.1);  // outside of predict the modules are in training mode
  BOOST_TEST(norm.buffer("num_batches_tracked").value().item() == 1);
}

BOOST_AUTO_TEST_CASE(a_net_may_ask_for_gradients_itself) {
  struct Forces : esp::nn::Module {
    esp::Variable operator()(const esp::Variable& x) const { return -esp::sum(energy(x)).gradient(x); }
    esp::nn::Sequential energy =
        add("energy", esp::nn::Sequential{esp::nn::Dense(3, 8), esp::nn::Tanh(), esp::nn::Dense(8, 1)});
  } const net;
  const esp::Tensor x = numbers({7, 3}, -1, 1).to(esp::float32), y = net(x).value();
  BOOST_TEST(difference(esp::predict(net, x, {.batch_size = 3}), y) < 1e-6);
  BOOST_TEST(difference(esp::predict(net, {x, y}, {.batch_size = 3}), y) < 1e-6);
  BOOST_TEST(esp::evaluate(net, esp::nn::MeanSquared(), {x, y}).loss_mean < 1e-9);
  const esp::NoGrad around;  // the caller's holds
  BOOST_CHECK_EXCEPTION(esp::predict(net, x), esp::Error, says({"gradient", "NoGrad", here()}));
}

BOOST_AUTO_TEST_CASE(a_lambda_has_the_modules_that_it_names) {
  const Line own;
  const auto call = [own](const esp::Variable& x) { return Line(own)(x); };
  const esp::nn::Lambda named(call, {{"own", own}});
  (void)named(esp::ones({2, 3}));
  BOOST_TEST(esp::nn::Sequential{named}.parameters().size() == 2u);
  BOOST_TEST(named.parameter("own.layer.weight").node() == own.parameter("layer.weight").node());
  esp::nn::Lambda(named).train(false);
  BOOST_TEST(!own.layer.training());
  BOOST_TEST(esp::nn::Lambda(call).parameters().empty());
  BOOST_CHECK_EXCEPTION(named.clone(), esp::UnsupportedError, says({"Lambda", "'own'", here()}));
  BOOST_CHECK_EXCEPTION(esp::nn::Lambda(call, {{"a.b", own}}), esp::Error, says({"a.b", here()}));
}

BOOST_AUTO_TEST_CASE(modes_are_afterwards_as_before) {
  const esp::nn::Dropout frozen(0.5), deep(0.5), other(0.5);
  const esp::nn::Sequential inner{esp::nn::Tanh(), deep}, net{esp::nn::Dense(4), frozen, inner, other};
  esp::nn::Dropout(frozen).train(false), esp::nn::Dropout(deep).train(false);
  const esp::Tensor x = esp::ones({6, 3});
  const esp::Tensor once = esp::predict(net, x), twice = esp::predict(net, x);
  BOOST_TEST(difference(once, twice) == 0);  // no dropout
  BOOST_TEST(net.training());
  BOOST_TEST(!frozen.training());
  BOOST_TEST((inner.training() && !deep.training()));
  BOOST_TEST(other.training());
  esp::nn::Sequential(net).train(false);
  esp::fit(net, esp::nn::MeanSquared(), {x, esp::ones({6, 4})}, {.progress = false});
  BOOST_TEST(!net.training());
  BOOST_TEST(!other.training());
}

BOOST_AUTO_TEST_CASE(evaluations_are_means_over_samples) {
  const Task t;
  const esp::nn::Sequential net = make_net();
  const esp::Tensor logits = net(t.x).value();
  const esp::EpochRecord record = esp::evaluate(
      net, esp::nn::SoftmaxCrossEntropy(), {t.x, t.y},
      {.batch_size = 16,
       .metrics = {{"accuracy", esp::accuracy}, {"f1", [](const esp::Variable& p, const esp::Variable& y) {
                                                   return esp::f1_score(p, y);
                                                 }}}});
  BOOST_TEST(record.samples == 70);
  BOOST_TEST(record.loss_mean == esp::softmax_cross_entropy(logits, t.y).item(),
             boost::test_tools::tolerance(1e-5));
  BOOST_TEST(record.outputs.at("accuracy") == esp::accuracy(logits, t.y).item(),
             boost::test_tools::tolerance(1e-12));
  BOOST_TEST(record.outputs.at("f1") == esp::f1_score(logits, t.y).value(),
             boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(all_kinds_of_data_and_modules) {
  const esp::Tensor x = numbers({20, 3}, -1, 1).to(esp::float32), y = esp::sum(x, {1}, true).value();
  for (const esp::TrainingData& data :
       {esp::TrainingData{x, y}, esp::TrainingData(std::vector<esp::Tensor>{x, y}),
        esp::TrainingData(std::make_shared<esp::data::TensorDataset>(std::vector<esp::Tensor>{x, y})),
        esp::TrainingData(esp::data::Distributor({x, y}, {.batch_size = 4}))}) {
    Line line;
    const esp::History history =
        esp::fit(line, esp::nn::MeanSquared(), data,
                 {.optimizer = esp::optim::Adam({.lr = 0.1}), .epochs = 60, .progress = false});
    BOOST_TEST(history.epochs.back().loss_mean < 0.02);
    BOOST_TEST(esp::evaluate(line, esp::nn::MeanSquared(), data).loss_mean < 0.02);
    BOOST_TEST(difference(y, esp::predict(line, x)) < 0.3);
  }
  // One column is its own target, and a function is a loss.
  esp::nn::Dense encoder(3);
  const auto loss = [](const esp::Variable& p, const esp::Variable& target) {
    return esp::mean_absolute_error(p, target);
  };
  const esp::History history = esp::fit(
      encoder, loss, {x}, {.optimizer = esp::optim::Adam({.lr = 0.05}), .epochs = 50, .progress = false});
  BOOST_TEST(history.epochs.back().loss_mean < 0.1 * history.epochs[0].loss_mean);
}

BOOST_AUTO_TEST_CASE(callbacks_and_checkpoints_go_along) {
  const TemporaryFolder folder;
  const Task t;
  const auto train = [&](int64_t epochs) {
    return esp::fit(make_net(), esp::nn::SoftmaxCrossEntropy(), {t.x, t.y},
                    {.optimizer = esp::optim::Sgd(0.1),
                     .epochs = epochs,
                     .progress = false,
                     .checkpoint = folder.path(),
                     .resume = true});
  };
  BOOST_TEST(train(2).epochs.size() == 2u);
  BOOST_TEST(train(5).epochs.size() == 5u);
  const esp::History stopped =
      esp::fit(make_net(), esp::nn::SoftmaxCrossEntropy(), {t.x, t.y},
               {.optimizer = esp::optim::Sgd(1e-9),
                .epochs = 20,
                .callbacks = {esp::EarlyStopping({.monitor = "loss", .patience = 2, .minimum_delta = 1})},
                .progress = false});
  BOOST_TEST(stopped.epochs.size() == 3u);
}

BOOST_AUTO_TEST_CASE(errors_name_the_call) {
  const Task t;
  const esp::nn::Sequential net = make_net();
  const esp::nn::SoftmaxCrossEntropy loss;
  BOOST_CHECK_EXCEPTION(esp::fit(net, loss, {}), esp::DataError, says({"no data", here()}));
  BOOST_CHECK_EXCEPTION(esp::fit(net, loss, {t.x, t.y, t.y}), esp::DataError, says({"3 columns", here()}));
  BOOST_CHECK_EXCEPTION(esp::fit(net, loss, {t.x, t.y}, {.resume = true}), esp::Error,
                        says({"checkpoint", here()}));
  BOOST_CHECK_EXCEPTION(esp::fit(net, loss, {t.x, t.y.slice(0, 0, 5)}), esp::DataError, says({here()}));
  BOOST_CHECK_EXCEPTION(esp::fit(net, loss, {t.x, t.y}, {.batch_size = 0}), esp::DataError, says({here()}));
}

BOOST_AUTO_TEST_CASE(metrics_are_numbers_with_names_of_their_own) {
  const Task t;
  const esp::nn::Sequential net = make_net();
  const esp::nn::SoftmaxCrossEntropy loss;
  const auto each = [](const esp::Variable& p, const esp::Variable& y) {
    return esp::equal(esp::argmax(p, -1), y);
  };
  const auto fit_with = [&](const esp::NamedMetrics& metrics) {
    esp::fit(net, loss, {t.x, t.y}, {.metrics = metrics, .progress = false});
  };
  BOOST_CHECK_EXCEPTION(fit_with({{"hits", each}}), esp::ShapeError,
                        says({"fit", "'hits'", "[32]", "scalar", "fit_test.cpp"}));
  for (const char* name : {"loss", "validation_loss"})
    BOOST_CHECK_EXCEPTION(fit_with({{name, esp::accuracy}}), esp::Error, says({"fit", name, "fit_test.cpp"}));
  BOOST_CHECK_EXCEPTION(fit_with({{"none", {}}}), esp::Error, says({"'none'", "empty", "fit_test.cpp"}));
  BOOST_CHECK_EXCEPTION(esp::evaluate(net, loss, {t.x, t.y}, {.metrics = {{"hits", each}}}), esp::ShapeError,
                        says({"evaluate", "'hits'", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
