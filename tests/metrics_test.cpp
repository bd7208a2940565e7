// Metrics: of tensors, in plans, over epochs with a short last batch, and on replicas.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/kit/auc.h"
#include "espalier/executor/kit/confusion_matrix.h"
#include "espalier/executor/kit/metrics.h"
#include "espalier/executor/metric_figures.h"
#include "espalier/ops/functions/metrics.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "metric_scores.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

using Make = std::function<esp::PlanOutput(const esp::Variable&, const esp::Variable&)>;

/// The figures of validation and training with batches of 5, so that the last one has 3 rows. The scores are
/// the logits, times a parameter that is 1 and stays so.
esp::EpochRecord epoch_of(const esp::Tensor& x, const esp::Tensor& y, const Make& make,
                          const std::vector<esp::Device>& devices, int accumulate = 1) {
  const esp::data::Distributor feed({x, y}, {.batch_size = 5}), held_out({x, y}, {.batch_size = 7});
  const auto in = feed.get_output_graphs();
  const esp::Variable w = esp::parameter(esp::tensor(1.0, esp::float64)), scores = in[0] * w;
  return esp::mean(esp::square(scores))
      .get_executor({.optimizer = esp::optim::Sgd(0.0),
                     .devices = devices,
                     .accumulate = accumulate,
                     .validation = held_out,
                     .outputs = {{"figure", make(scores, in[1])}}})
      .execute({.progress = false})
      .epochs.back();
}

/// Checks a figure of all rows against that of epochs in plans.
void check_epochs(const char* what, double expected, const esp::Tensor& x, const esp::Tensor& y,
                  const Make& make) {
  for (const int replicas : {1, 2, 3}) {
    std::vector<esp::Device> devices;
    for (int i = 0; i < replicas; ++i) devices.push_back(esp::cpu(i));
    const esp::EpochRecord epoch = epoch_of(x, y, make, devices);
    BOOST_TEST(close(expected, epoch.outputs.at("figure")), what << " on " << replicas);
    BOOST_TEST(close(expected, epoch.validation_outputs.at("figure")), what << " on " << replicas);
  }
  BOOST_TEST(close(expected, epoch_of(x, y, make, {}, 2).outputs.at("figure")), what << " in parts");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(metrics)

BOOST_AUTO_TEST_CASE(confusion_matrix_counts) {
  const esp::Tensor predicted = esp::tensor({0, 1, 1, 2, 2, 2}), labels = esp::tensor({0, 1, 0, 2, 2, 1});
  const esp::ConfusionMatrix matrix(predicted, labels, 4);
  const int64_t expected[4][4] = {{1, 1, 0, 0}, {0, 1, 1, 0}, {0, 0, 2, 0}, {0, 0, 0, 0}};
  for (int64_t label = 0; label < 4; ++label)
    for (int64_t c = 0; c < 4; ++c) {
      BOOST_TEST(matrix.count(label, c) == expected[label][c]);
      BOOST_TEST(matrix.counts().at<int64_t>({label, c}) == expected[label][c]);
    }
  BOOST_TEST(close(matrix.accuracy(), 4.0 / 6));
  BOOST_TEST(close(matrix.precision(2), 2.0 / 3));
  BOOST_TEST(close(matrix.recall(0), 0.5));
  BOOST_TEST(matrix.recall(3) == 0);
  BOOST_TEST(close(matrix.f1_score(1), 0.5));
  BOOST_TEST(close(matrix.precision(), (1 + 0.5 + 2.0 / 3) / 3));  // class 3 does not occur
  BOOST_TEST(close(matrix.recall(), (0.5 + 0.5 + 1) / 3));
  BOOST_TEST(close(matrix.f1_score(esp::Average::micro), 4.0 / 6));
  std::ostringstream text;
  text << matrix;
  BOOST_TEST(text.str() ==
             "label\\predicted     0     1     2     3  recall\n"
             "              0     1     1     0     0  0.5000\n"
             "              1     0     1     1     0  0.5000\n"
             "              2     0     0     2     0  1.0000\n"
             "              3     0     0     0     0  0.0000\n"
             "      precision 1.000 0.500 0.667 0.000\n"
             "4 of 6 right: accuracy 0.6667\n");
}

BOOST_AUTO_TEST_CASE(confusion_matrix_refuses_what_it_cannot_count) {
  esp::ConfusionMatrix matrix(3);
  BOOST_CHECK_EXCEPTION(matrix.update(esp::tensor({0, 3}), esp::tensor({0, 1})), esp::IndexError,
                        says({"3", "3 classes", here()}));
  BOOST_CHECK_EXCEPTION(matrix.update(esp::tensor({0, 1}), esp::tensor({0, -1})), esp::IndexError,
                        says({"-1", here()}));
  BOOST_CHECK_EXCEPTION(matrix.update(esp::tensor({0.5f}), esp::tensor({0})), esp::TypeError,
                        says({"float32", here()}));
  BOOST_CHECK_EXCEPTION(matrix.update(esp::tensor({0, 1}), esp::tensor({0})), esp::ShapeError,
                        says({"[2]", "[1]", here()}));
  BOOST_TEST(matrix.total() == 0);
  BOOST_CHECK_EXCEPTION(esp::ConfusionMatrix(0), esp::Error, says({"0 classes", here()}));
  BOOST_CHECK_EXCEPTION(esp::ConfusionMatrix(INT64_MAX), esp::ShapeError, says({"ConfusionMatrix", here()}));
  for (const int64_t classes : {int64_t{3'000'000}, int64_t{2'000'000'000}})
    BOOST_CHECK_EXCEPTION(esp::ConfusionMatrix{classes}, esp::OutOfMemory,
                          says({"ConfusionMatrix", std::to_string(classes), here()}));
  BOOST_CHECK_EXCEPTION(matrix.recall(3), esp::IndexError, says({"recall", here()}));
  matrix.update(esp::tensor({{0}, {1}}), esp::tensor({0, 1}));
  BOOST_TEST(matrix.accuracy() == 1);
}

BOOST_AUTO_TEST_CASE(accuracy_and_top_k_in_types_and_plans) {
  const esp::Tensor labels = esp::tensor({0, 2, 1, 2}).to(esp::int64);
  // Whether fewer than k elements come before the label's: larger ones, or, if told so, equal ones on its
  // left.
  const auto fraction = [](const std::vector<Array>& in, int64_t k, bool first) {
    return Array({}, [&](const Index&) {
      double right = 0;
      for (int64_t row = 0; row < 4; ++row) {
        const auto label = static_cast<int64_t>(in[1]({row}));
        int64_t before = 0;
        for (int64_t i = 0; i < 3; ++i)
          before += in[0]({row, i}) > in[0]({row, label}) ||
                    (first && i < label && in[0]({row, i}) == in[0]({row, label}));
        right += before < k;
      }
      return right / 4;
    });
  };
  check_op({.name = "accuracy",
            .op = [](const Variables& v) { return esp::accuracy(v[0], v[1]); },
            .inputs = {numbers({4, 3}), labels},
            .reference = [=](const std::vector<Array>& in) { return fraction(in, 1, true); },
            .order = 0,
            .roundings = 0});
  check_op({.name = "top_k_accuracy",
            .op = [](const Variables& v) { return esp::top_k_accuracy(v[0], v[1], 2); },
            .inputs = {numbers({4, 3}), labels},
            .reference = [=](const std::vector<Array>& in) { return fraction(in, 2, false); },
            .order = 0,
            .roundings = 0});
}

BOOST_AUTO_TEST_CASE(accuracy_and_top_k) {
  const esp::Tensor logits = esp::tensor({{1.0, 3.0, 2.0}, {5.0, 1.0, 0.0}, {0.0, 2.0, 2.0}}, esp::float64),
                    labels = esp::tensor({1, 2, 2});
  BOOST_TEST(close(esp::accuracy(logits, labels).item(), 1.0 / 3));  // of equal ones the first counts
  BOOST_TEST(close(esp::top_k_accuracy(logits, labels, 1).item(), 2.0 / 3));
  BOOST_TEST(close(esp::top_k_accuracy(logits, labels, 2).item(), 2.0 / 3));
  BOOST_TEST(esp::top_k_accuracy(logits, labels.reshape({3, 1}), 3).item() == 1);
  const esp::Tensor undefined = esp::tensor({{double{NAN}, 1.0, 2.0}});
  BOOST_TEST(esp::top_k_accuracy(undefined, esp::tensor({0}), 3).item() == 0);
  BOOST_CHECK_EXCEPTION(esp::top_k_accuracy(logits, labels, 4), esp::Error, says({"4", "3 classes", here()}));
  BOOST_CHECK_EXCEPTION(esp::accuracy(logits, esp::tensor({1, 2})), esp::ShapeError,
                        says({"accuracy", "[2]", "[3, 3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::accuracy(logits, logits), esp::TypeError, says({"float64", here()}));
  BOOST_CHECK_EXCEPTION(esp::mean_absolute_error(logits, esp::ones({3}, esp::float64)), esp::ShapeError,
                        says({"[3]", here()}));
  BOOST_TEST(close(esp::mean_absolute_error(logits, esp::zeros({3, 3}, esp::float64)).item(), 16.0 / 9));
}

BOOST_AUTO_TEST_CASE(figures_of_epochs_are_those_of_all_samples) {
  const Scores s;
  const esp::ConfusionMatrix matrix = s.matrix();
  using V = esp::Variable;
  const struct {
    const char* name;
    double expected;
    Make make;
  } cases[] = {
      {"accuracy", matrix.accuracy(), esp::accuracy},
      {"precision", matrix.precision(), [](const V& x, const V& y) { return esp::precision(x, y); }},
      {"recall", matrix.recall(), [](const V& x, const V& y) { return esp::recall(x, y); }},
      {"f1", matrix.f1_score(), [](const V& x, const V& y) { return esp::f1_score(x, y); }},
      {"f1 of class 1", matrix.f1_score(1),
       [](const V& x, const V& y) { return esp::f1_score(x, y, {.of_class = 1}); }},
      {"precision of class 2, whatever the average", matrix.precision(2),
       [](const V& x, const V& y) {
         return esp::precision(x, y, {.average = esp::Average::micro, .of_class = 2});
       }},
      {"micro", matrix.accuracy(),
       [](const V& x, const V& y) { return esp::f1_score(x, y, {.average = esp::Average::micro}); }},
      {"perplexity", std::exp(esp::softmax_cross_entropy(s.logits, s.labels).item()),
       [](const V& x, const V& y) { return esp::perplexity(x, y); }},
      {"without 0", std::exp(esp::softmax_cross_entropy(s.logits, s.labels, {.ignored_label = 0}).item()),
       [](const V& x, const V& y) { return esp::perplexity(x, y, 0); }},
  };
  for (const auto& c : cases) check_epochs(c.name, c.expected, s.logits, s.labels, c.make);
}

BOOST_AUTO_TEST_CASE(r2_is_that_of_all_samples) {
  const esp::Tensor x = numbers({rows, 3}, -2, 2, 1), y = (x + numbers({rows, 3}, -1, 1, 2)).value();
  const double residual = esp::sum(esp::square(esp::Variable(x) - y)).item(), mean = esp::mean(y).item(),
               total = esp::sum(esp::square(esp::Variable(y) - mean)).item();
  check_epochs("R²", 1 - residual / total, x, y,
               [](const esp::Variable& a, const esp::Variable& b) { return esp::r2_score(a, b); });
  BOOST_TEST(esp::r2_score(y, y).value() == 1);
  BOOST_TEST(std::isnan(esp::r2_score(y, esp::ones({rows, 3}, esp::float64)).value()));
}

BOOST_AUTO_TEST_CASE(r2_of_targets_that_are_large_beside_their_deviation) {
  const esp::Tensor noise = numbers({rows, 3}, -1, 1, 1), small = numbers({rows, 3}, -1, 1, 2),
                    y = (esp::Variable(noise) + 1e8).value(),
                    x = (esp::Variable(y) + esp::Variable(small) * 0.3).value();
  const auto exact = [](const esp::Tensor& a, const esp::Tensor& b) {
    const esp::Variable t(b);
    const double residual = esp::sum(esp::square(t - a)).item(),
                 total = esp::sum(esp::square(t - esp::mean(t).item())).item();
    return 1 - residual / total;
  };
  const double expected = exact(x, y);
  BOOST_TEST((expected > 0 && expected < 1));
  for (const int replicas : {1, 2, 3}) {
    std::vector<esp::Device> devices;
    for (int i = 0; i < replicas; ++i) devices.push_back(esp::cpu(i));
    const esp::data::Distributor feed({x, y}, {.batch_size = 5}), held_out({x, y}, {.batch_size = 7});
    const auto in = feed.get_output_graphs();
    const esp::Variable w = esp::parameter(esp::tensor(0.0, esp::float64));
    const esp::EpochRecord epoch = esp::mean(in[0] * w)
                                       .get_executor({.optimizer = esp::optim::Sgd(0.0),
                                                      .devices = devices,
                                                      .accumulate = replicas == 3 ? 1 : replicas,
                                                      .validation = held_out,
                                                      .outputs = {{"r2", esp::r2_score(in[0], in[1])}}})
                                       .execute({.progress = false})
                                       .epochs.back();
    const auto near = boost::test_tools::tolerance(1e-7);  // 1e8 leaves its differences eight digits
    BOOST_TEST(epoch.outputs.at("r2") == expected, near);
    BOOST_TEST(epoch.validation_outputs.at("r2") == expected, near);
  }
  esp::MetricAccumulator sum;  // each batch is about a center of its own
  for (int64_t begin = 0; begin < rows; begin += 5) {
    const int64_t end = std::min(rows, begin + 5);
    sum.add(esp::r2_score(x.slice(0, begin, end), y.slice(0, begin, end)), end - begin);
  }
  BOOST_TEST(sum.value() == expected, boost::test_tools::tolerance(1e-7));
  BOOST_TEST(std::isnan(esp::r2_score(x, esp::full({rows, 3}, 1e8, esp::float64)).value()));
}

BOOST_AUTO_TEST_CASE(batches_are_added_up_in_loops_of_ones_own) {
  const Scores s;
  esp::MetricAccumulator f1, perplexity;
  for (int64_t begin = 0; begin < rows; begin += 5) {
    const int64_t end = std::min(rows, begin + 5);
    const esp::Tensor x = s.logits.slice(0, begin, end), y = s.labels.slice(0, begin, end);
    f1.add(esp::f1_score(x, y), end - begin);
    perplexity.add(esp::perplexity(x, y), end - begin);
  }
  BOOST_TEST(f1.samples() == rows);
  BOOST_TEST(close(f1.value(), s.matrix().f1_score()));
  BOOST_TEST(close(perplexity.value(), esp::perplexity(s.logits, s.labels).value()));
  BOOST_CHECK_EXCEPTION(f1.add(esp::perplexity(s.logits, s.labels), 3), esp::Error,
                        says({"2 means", here()}));
  BOOST_CHECK_EXCEPTION(f1.add(esp::f1_score(s.logits, s.labels), 0), esp::Error, says({"0", here()}));
  BOOST_CHECK_EXCEPTION(esp::MetricAccumulator().value(), esp::Error, says({"no batch", here()}));
  f1.reset();
  BOOST_TEST(f1.samples() == 0);
  f1.add(esp::perplexity(s.logits, s.labels), rows);  // another metric may follow
  BOOST_TEST(close(f1.value(), perplexity.value()));
}

BOOST_AUTO_TEST_CASE(a_metric_is_an_output_of_a_step) {
  const Scores s;
  const esp::data::Distributor feed({s.logits, s.labels}, {.batch_size = 5});
  const auto in = feed.get_output_graphs();
  const esp::Variable w = esp::parameter(esp::tensor(1.0, esp::float64)), scores = in[0] * w;
  const esp::Executor executor = esp::mean(scores).get_executor(
      {.optimizer = esp::optim::Sgd(0.0),
       .outputs = {{"before", esp::mean(scores)}, {"f1", esp::f1_score(scores, in[1])}, {"after", scores}}});
  executor.step();
  executor.step();
  const esp::Tensor x = s.logits.slice(0, 5, 10), y = s.labels.slice(0, 5, 10);
  BOOST_TEST(close(executor.output("f1").item(), esp::f1_score(x, y).value()));
  BOOST_TEST(close(executor.output("before").item(), esp::mean(x).item()));
  BOOST_TEST(difference(executor.output("after"), x) == 0);
}

BOOST_AUTO_TEST_CASE(outputs_tell_the_types_that_metrics_have) {
  const esp::Variable x = esp::placeholder("x", {4});  // float32, as is the mean
  const esp::Metric root({esp::mean(x)}, [](std::span<const double> means) { return std::sqrt(means[0]); });
  const esp::Executor executor = esp::sum(x).get_executor(
      {.mode = esp::Mode::inference, .outputs = {{"root", root}, {"largest", esp::max(x)}}});
  (void)executor.run({{"x", esp::full({4}, 9)}});
  BOOST_TEST(executor.output("root").item() == 3);
  const std::vector<esp::ValueInfo> outputs = executor.outputs();
  BOOST_TEST_REQUIRE(outputs.size() == 3u);
  for (size_t k : {1, 2}) {
    const esp::Tensor value = executor.output(outputs[k].name);
    BOOST_TEST((outputs[k].dtype == value.dtype()), outputs[k].name);
    BOOST_TEST((outputs[k].shape == value.shape()), outputs[k].name);
  }
}

BOOST_AUTO_TEST_CASE(checkpoints_within_an_epoch_keep_the_sums) {
  const Scores s;
  const TemporaryFolder folder;
  struct Program {
    esp::data::Distributor feed;
    std::vector<esp::Variable> in = feed.get_output_graphs();
    esp::Variable w = esp::parameter(esp::tensor(1.0, esp::float64)), scores = in[0] * w;
    esp::Executor executor = esp::mean(scores).get_executor(
        {.optimizer = esp::optim::Sgd(0.0),
         .outputs = {{"f1", esp::f1_score(scores, in[1])}, {"mean", esp::mean(scores)}}});
    explicit Program(const Scores& s) : feed({s.logits, s.labels}, {.batch_size = 5}) {}
  };
  Program first(s), second(s), whole(s);
  first.executor.on(esp::Event::step_finish, [&](const esp::StepInfo& info) {
    if (info.epoch == 1 && info.step == 1) first.executor.stop();
  });
  first.executor.execute({.epochs = 3, .progress = false, .checkpoint = folder.path()});
  second.executor.resume(folder.path());
  const esp::History resumed = second.executor.execute({.epochs = 3, .progress = false}),
                     expected = whole.executor.execute({.epochs = 3, .progress = false});
  BOOST_TEST_REQUIRE(resumed.epochs.size() == 3u);
  for (size_t e = 0; e < 3; ++e) BOOST_TEST((resumed.epochs[e].outputs == expected.epochs[e].outputs));
  BOOST_TEST(close(resumed.epochs[1].outputs.at("f1"), s.matrix().f1_score()));
  // Another metric of that name does not fit.
  esp::Variable scores = second.in[0] * second.w;
  const esp::Executor other = esp::mean(scores).get_executor(
      {.optimizer = esp::optim::Sgd(0.0),
       .outputs = {{"f1", esp::perplexity(scores, second.in[1])}, {"mean", esp::mean(scores)}}});
  BOOST_CHECK_EXCEPTION(other.resume(folder.path()), esp::FileError, says({"outputs", "13", "3", here()}));
}

BOOST_AUTO_TEST_CASE(metrics_refuse_what_is_no_mean) {
  const auto finish = [](std::span<const double> means) { return means[0]; };
  BOOST_CHECK_EXCEPTION(esp::Metric({}, finish), esp::Error, says({"means", here()}));
  BOOST_CHECK_EXCEPTION(esp::Metric({esp::placeholder("x", {-1, 2})}, finish), esp::ShapeError,
                        says({"axis 0", here()}));
  BOOST_CHECK_EXCEPTION(esp::Metric({esp::Variable()}, finish), esp::Error, says({"undefined", here()}));
  BOOST_CHECK_EXCEPTION(esp::Metric({esp::Variable(1)}, finish), esp::TypeError, says({"int64", here()}));
  const Scores s;
  BOOST_CHECK_EXCEPTION(esp::precision(s.logits, s.labels, {.of_class = 4}), esp::Error,
                        says({"class 4", here()}));
  BOOST_CHECK_EXCEPTION(esp::r2_score(s.logits, s.labels), esp::ShapeError, says({"r2_score", here()}));
}

BOOST_AUTO_TEST_CASE(auc_of_an_epoch_is_that_of_all_samples) {
  const esp::Tensor x = numbers({11, 3}, -1, 1, 1),
                    y = esp::tensor({1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1}, esp::int64);
  for (const int replicas : {1, 2}) {
    std::vector<esp::Device> devices;
    for (int i = 0; i < replicas; ++i) devices.push_back(esp::cpu(i));
    const esp::data::Distributor feed({x, y}, {.batch_size = 4, .shuffle = true});
    const auto [rows, labels] = feed.get_output_graphs<2>();
    const esp::Variable scores = esp::sum(rows, 1);
    const esp::Executor executor =
        esp::mean(scores).get_executor({.mode = esp::Mode::inference,
                                        .devices = devices,
                                        .outputs = {{"scores", scores}, {"labels", labels}}});
    esp::Auc all;
    executor.on(esp::Event::step_finish,
                [&](const esp::StepInfo&) { all.add(executor.output("scores"), executor.output("labels")); });
    (void)executor.execute({.progress = false});
    BOOST_TEST(close(all.value(), esp::auc(esp::sum(x, 1).value(), y)), "on " << replicas);
  }
}

BOOST_AUTO_TEST_CASE(auc_is_exact) {
  const esp::Tensor scores = esp::tensor({0.1, 0.4, 0.35, 0.8, 0.4}, esp::float64),
                    labels = esp::tensor({0, 0, 1, 1, 1});
  // Of six pairs, 0.35 > 0.1, 0.8 > both, 0.4 > 0.1, and 0.4 = 0.4 counts half.
  BOOST_TEST(close(esp::auc(scores, labels), 4.5 / 6));
  const esp::Tensor x = numbers({400}, -1, 1), y = numbers({400}, -1, 1, 5);
  esp::Tensor classes_of = esp::zeros({400}, esp::int64);
  double wins = 0, pairs = 0;
  for (int64_t i = 0; i < 400; ++i) classes_of.at<int64_t>({i}) = x.at<double>({i}) + y.at<double>({i}) > 0;
  for (int64_t i = 0; i < 400; ++i)
    for (int64_t j = 0; j < 400; ++j)
      if (classes_of.at<int64_t>({i}) > classes_of.at<int64_t>({j})) {
        wins += x.at<double>({i}) > x.at<double>({j});
        ++pairs;
      }
  esp::Auc sum;
  sum.add(x.slice(0, 0, 150), classes_of.slice(0, 0, 150));
  sum.add(x.slice(0, 150, 400), classes_of.slice(0, 150, 400));
  BOOST_TEST(close(sum.value(), wins / pairs));
  BOOST_CHECK_EXCEPTION(esp::auc(scores, esp::ones({5})), esp::DataError, says({"negatives", here()}));
  BOOST_CHECK_EXCEPTION(esp::auc(scores, esp::tensor({0, 1, 2, 0, 1})), esp::DataError, says({"2", here()}));
  BOOST_CHECK_EXCEPTION(esp::auc(scores, esp::ones({4})), esp::ShapeError, says({"[4]", here()}));
}

BOOST_AUTO_TEST_CASE(a_batch_that_auc_refuses_leaves_nothing_behind) {
  esp::Auc auc;
  auc.add(esp::tensor({1.0, 2.0, 3.0}), esp::tensor({0, 1, 0}));
  BOOST_TEST(auc.value() == 0.5);
  BOOST_CHECK_EXCEPTION(auc.add(esp::tensor({9.0, double{NAN}}), esp::tensor({1, 1})), esp::DataError,
                        says({"score 1 is NaN", here()}));
  BOOST_CHECK_EXCEPTION(auc.add(esp::tensor({9.0, 9.0}), esp::tensor({1, 2})), esp::DataError,
                        says({"label 1", here()}));
  BOOST_TEST(auc.value() == 0.5);
  auc.add(esp::tensor({4.0}), esp::tensor({1}));
  BOOST_TEST(auc.value() == 0.75);
}

BOOST_AUTO_TEST_CASE(classes_that_are_only_predicted_or_only_labels_count) {
  // Of three classes and one that is absent: the shares of true positives, of predictions and of labels.
  const std::vector<double> shares{0.2, 0.25, 0.4, 0, 0, 0.6, 0, 0.75, 0, 0, 0, 0};
  const auto close = boost::test_tools::tolerance(1e-12);
  BOOST_TEST(esp::figures::precision(shares) == 0.8 / 3, close);
  BOOST_TEST(esp::figures::recall(shares) == 0.5 / 3, close);
  BOOST_TEST(esp::figures::f1_score(shares) == 0.4 / 0.65 / 3, close);
  BOOST_TEST(esp::figures::precision(std::vector<double>(6, 0)) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
