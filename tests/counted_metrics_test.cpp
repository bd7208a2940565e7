// Metrics whose means are arrays: the area under the ROC curve and the confusion matrix, of runs and on
// replicas.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/kit/auc.h"
#include "espalier/executor/kit/confusion_matrix.h"
#include "espalier/executor/kit/early_stopping.h"
#include "espalier/executor/kit/fit.h"
#include "espalier/executor/kit/metrics.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "metric_scores.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// Scores that bins tell apart, but for some that are equal, and labels.
struct Ranking {
  esp::Tensor scores = esp::zeros({rows}, esp::float64), labels = esp::zeros({rows}, esp::int64);
  Ranking() {
    for (int64_t i = 0; i < rows; ++i) {
      scores.at<double>({i}) = 0.25 * static_cast<double>((i * 7) % 11) - 1.3;
      labels.at<int64_t>({i}) = (i * i) % 5 < 2;
    }
  }
};

using Make = std::function<esp::PlanOutput(const esp::Variable&, const esp::Variable&)>;

/// Checks a figure of all rows against that of epochs, whose last batches are short.
void check_epochs(double expected, const esp::Tensor& x, const esp::Tensor& y, const Make& make) {
  for (const int replicas : {1, 2, 3})
    for (const int parts : {1, 2}) {
      std::vector<esp::Device> devices;
      for (int i = 0; i < replicas; ++i) devices.push_back(esp::cpu(i));
      const esp::data::Distributor feed({x, y}, {.batch_size = 5}), held_out({x, y}, {.batch_size = 7});
      const auto in = feed.get_output_graphs();
      const esp::Variable w = esp::parameter(esp::tensor(1.0, esp::float64)), scores = in[0] * w;
      const esp::EpochRecord epoch = esp::mean(esp::square(scores))
                                         .get_executor({.optimizer = esp::optim::Sgd(0.0),
                                                        .devices = devices,
                                                        .accumulate = parts,
                                                        .validation = held_out,
                                                        .outputs = {{"figure", make(scores, in[1])}}})
                                         .execute({.progress = false})
                                         .epochs.back();
      BOOST_TEST(close(expected, epoch.outputs.at("figure")), parts << " parts on " << replicas);
      BOOST_TEST(close(expected, epoch.validation_outputs.at("figure")), parts << " parts on " << replicas);
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(counted_metrics)

BOOST_AUTO_TEST_CASE(auc_score_is_a_figure_of_epochs) {
  const Ranking r;
  const double expected = esp::auc(r.scores, r.labels);
  BOOST_TEST((expected > 0.1 && expected < 0.9));
  check_epochs(expected, r.scores, r.labels, esp::auc_score);
  BOOST_TEST(close(esp::auc_score(r.scores.reshape({rows, 1}), r.labels).value(), expected));
  const esp::Tensor wide = esp::tensor({1e30, -1e30, double{INFINITY}, double{-INFINITY}}, esp::float64);
  BOOST_TEST(esp::auc_score(wide, esp::tensor({1, 0, 1, 0})).value() == 1);
  BOOST_TEST(std::isnan(esp::auc_score(r.scores, esp::ones({rows})).value()));
  BOOST_TEST(std::isnan(esp::auc_score(esp::tensor({0.1, 0.2}), esp::tensor({0, 2})).value()));
  BOOST_TEST(std::isnan(esp::auc_score(esp::tensor({double{NAN}, 0.2}), esp::tensor({0, 1})).value()));
  BOOST_CHECK_EXCEPTION(esp::auc_score(r.scores, esp::ones({4})), esp::ShapeError,
                        says({"auc_score", "[4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::auc_score(r.labels, r.labels), esp::TypeError, says({"int64", here()}));
}

BOOST_AUTO_TEST_CASE(auc_score_differs_by_its_bins_at_most) {
  const esp::Tensor x = numbers({4000}, -3, 3), noise = numbers({4000}, -3, 3, 5);
  esp::Tensor y = esp::zeros({4000}, esp::int64);
  for (int64_t i = 0; i < 4000; ++i) y.at<int64_t>({i}) = x.at<double>({i}) + noise.at<double>({i}) > 0;
  BOOST_TEST(std::abs(esp::auc_score(x, y).value() - esp::auc(x, y)) < 1e-4);
}

BOOST_AUTO_TEST_CASE(confusion_is_a_figure_of_epochs) {
  const Scores s;
  check_epochs(s.matrix().accuracy(), s.logits, s.labels, esp::confusion);
  BOOST_CHECK_EXCEPTION((void)esp::confusion(s.logits, esp::full({rows}, 4, esp::int64)).value(),
                        esp::IndexError, says({"confusion", here()}));
}

BOOST_AUTO_TEST_CASE(matrices_of_a_run_are_kept) {
  const Scores s;
  const esp::ConfusionMatrix expected = s.matrix();
  for (const int replicas : {1, 2}) {
    std::vector<esp::Device> devices;
    for (int i = 0; i < replicas; ++i) devices.push_back(esp::cpu(i));
    const esp::data::Distributor feed({s.logits.slice(0, 0, 10), s.labels.slice(0, 0, 10)},
                                      {.batch_size = 4}),
        held_out({s.logits, s.labels}, {.batch_size = 7});
    const auto in = feed.get_output_graphs();
    const esp::Variable w = esp::parameter(esp::tensor(1.0, esp::float64)), scores = in[0] * w;
    const esp::Executor executor = esp::mean(scores).get_executor(
        {.optimizer = esp::optim::Sgd(0.0),
         .devices = devices,
         .validation = held_out,
         .outputs = {{"mean", esp::mean(scores)}, {"matrix", esp::confusion(scores, in[1])}}});
    const esp::ConfusionLog validation("validation_matrix"), training("matrix");
    executor.use(validation);
    executor.use(training);
    (void)executor.execute({.epochs = 2, .progress = false});
    BOOST_TEST_REQUIRE(validation.matrices().size() == 2u);
    BOOST_TEST_REQUIRE(training.matrices().size() == 2u);
    for (const esp::ConfusionMatrix& matrix : validation.matrices())
      BOOST_TEST(difference(matrix.counts(), expected.counts()) == 0);
    for (const esp::ConfusionMatrix& matrix : training.matrices()) BOOST_TEST(matrix.total() == 10);
    executor.use(esp::ConfusionLog("mean"));
    BOOST_CHECK_EXCEPTION(executor.execute({.progress = false}), esp::Error,
                          says({"'mean'", "confusion", "counted_metrics_test.cpp"}));
  }
}

BOOST_AUTO_TEST_CASE(rows_of_a_batch_are_no_means) {
  const esp::data::Distributor feed({esp::ones({8, 2})}, {.batch_size = 4});
  const esp::Variable x = feed.get_output_graphs()[0];
  const esp::Metric metric({x}, [](std::span<const double> numbers) { return numbers[0]; });
  BOOST_CHECK_EXCEPTION(esp::mean(x)
                            .get_executor({.mode = esp::Mode::inference,
                                           .devices = {esp::cpu(0), esp::cpu(1)},
                                           .outputs = {{"rows", metric}}})
                            .execute({.progress = false}),
                        esp::UnsupportedError, says({"Metric", "row for each", "counted_metrics_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(fit_takes_them_and_callbacks_watch_them) {
  const esp::Tensor x = numbers({40, 3}).to(esp::float32);
  esp::Tensor y = esp::zeros({40}, esp::int64);
  for (int64_t i = 0; i < 40; ++i) y.at<int64_t>({i}) = x.at<float>({i, 0}) > 0;
  const esp::nn::Dense net(3, 2);
  const esp::ConfusionLog log;
  const esp::History history = esp::fit(
      net, esp::nn::SoftmaxCrossEntropy(), {x, y},
      {.epochs = 3,
       .validation = {x, y},
       .metrics = {{"confusion", esp::confusion},
                   {"auc",
                    [](const esp::Variable& logits, const esp::Variable& labels) {
                      return esp::auc_score(esp::slice(logits, 1, 1, 2) - esp::slice(logits, 1, 0, 1),
                                            labels);
                    }}},
       .callbacks = {log, esp::EarlyStopping({.monitor = "validation_auc", .patience = 9, .maximize = true})},
       .progress = false});
  BOOST_TEST_REQUIRE(history.epochs.size() == 3u);
  const esp::Tensor logits = esp::predict(net, x);
  const esp::Tensor scores = (esp::slice(logits, 1, 1, 2) - esp::slice(logits, 1, 0, 1)).value();
  BOOST_TEST(std::abs(*history.epochs[2].figure("validation_auc") - esp::auc(scores, y)) < 1e-3);
  BOOST_TEST_REQUIRE(log.matrices().size() == 3u);
  BOOST_TEST(difference(log.matrices()[2].counts(),
                        esp::ConfusionMatrix(esp::argmax(logits, 1).value(), y, 2).counts()) == 0);
}

BOOST_AUTO_TEST_CASE(labels_that_are_no_class_are_named) {
  for (const int64_t label : {7, 3, -1})
    BOOST_CHECK_EXCEPTION(esp::confusion(esp::zeros({1, 3}), esp::tensor({label})), esp::IndexError,
                          says({"confusion: index " + std::to_string(label), "of size 3", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
