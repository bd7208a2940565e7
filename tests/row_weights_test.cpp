// Losses of labels by row: how much each row counts.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/nn/ctc_loss.h"
#include "espalier/nn/losses.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::LossReduction;
using esp::Tensor;
using esp::Variable;

namespace {

const esp::Shape scores_shape{3, 4};
Tensor scores() { return numbers(scores_shape, -2, 2, 1); }
Tensor row_labels() { return esp::tensor({1, 0, 3}); }
Tensor distributions() { return esp::softmax(numbers(scores_shape, -1, 1, 2)).value(); }
Tensor row_weights() { return esp::tensor({0.5, 2.0, 0.0}, esp::float64); }
Tensor class_weights() { return numbers({4}, 0.1, 2, 7); }

esp::Shape two_rows(esp::Shape shape) {
  shape.dims()[0] = 2;
  return shape;
}

/// A loss of scores and labels with these weights and that reduction.
using Loss = std::function<Variable(const Variable& x, const Variable& labels, const Variable& weights,
                                    LossReduction reduction)>;
struct Case {
  std::string name;
  Tensor labels;
  Loss loss;
  Variable divisor = {};  ///< of the mean; undefined: the number of rows
};

Loss cross_entropy(esp::CrossEntropyOptions options) {
  return [=](const Variable& x, const Variable& labels, const Variable& weights, LossReduction reduction) {
    esp::CrossEntropyOptions all = options;
    all.weights = weights;
    all.reduction = reduction;
    return nn::SoftmaxCrossEntropy(all)(x, labels);
  };
}

std::vector<Case> cases() {
  const Variable counted = esp::gather(class_weights(), row_labels());
  return {
      {"softmax_cross_entropy", row_labels(), cross_entropy({})},
      {"softmax_cross_entropy", esp::unsqueeze(row_labels(), -1).value(),
       cross_entropy({.class_weights = class_weights()}), esp::sum(counted)},
      {"softmax_cross_entropy", row_labels(), cross_entropy({.ignored_label = 0}), Variable(2.0)},
      {"softmax_cross_entropy", row_labels(), cross_entropy({.label_smoothing = 0.2})},
      {"softmax_cross_entropy", distributions(), cross_entropy({.class_weights = class_weights()})},
      {"nll_loss", row_labels(),
       [](const Variable& x, const Variable& y, const Variable& w, LossReduction r) {
         return nn::NegativeLogLikelihood({.weights = w, .reduction = r})(esp::log_softmax(x), y);
       }},
      {"categorical_cross_entropy", row_labels(),
       [](const Variable& x, const Variable& y, const Variable& w, LossReduction r) {
         return nn::CrossEntropy({.weights = w, .reduction = r})(esp::softmax(x), y);
       }},
      {"multi_margin_loss", row_labels(),
       [](const Variable& x, const Variable& y, const Variable& w, LossReduction r) {
         return nn::MultiMargin({.class_weights = class_weights(), .weights = w, .reduction = r})(x, y);
       }},
      {"multilabel_soft_margin_loss", distributions(),
       [](const Variable& x, const Variable& y, const Variable& w, LossReduction r) {
         return nn::MultiLabelSoftMargin({.class_weights = class_weights(), .weights = w, .reduction = r})(x,
                                                                                                           y);
       }},
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(row_weights_of_losses)

BOOST_AUTO_TEST_CASE(each_loss_counts_as_often_as_its_weight_says) {
  const Variable x = esp::variable(scores()), w = esp::variable(row_weights());
  for (const auto& [name, labels, loss, divisor] : cases()) BOOST_TEST_CONTEXT(name) {
      const Variable each = loss(x, labels, {}, LossReduction::none) * w;
      const Variable mean =
          divisor.defined() ? esp::sum(each) / esp::cast(divisor, esp::float64) : esp::mean(each);
      BOOST_TEST(difference(loss(x, labels, w, LossReduction::none), each) < 1e-12);
      BOOST_TEST(difference(loss(x, labels, w, LossReduction::sum), esp::sum(each)) < 1e-12);
      const Variable found = loss(x, labels, w, LossReduction::mean);
      BOOST_TEST(difference(found, mean) < 1e-12);
      BOOST_TEST(difference(found.gradient(x), mean.gradient(x)) < 1e-12);
      BOOST_TEST(difference(found.gradient(w), mean.gradient(w)) < 1e-12);
      BOOST_TEST(difference(loss(x, labels, Variable(2.0), LossReduction::mean),
                            loss(x, labels, {}, LossReduction::mean) * 2) < 1e-12);
      BOOST_CHECK_EXCEPTION(loss(x, labels, esp::ones({2}), LossReduction::mean), esp::ShapeError,
                            says({name, "weights", "[2]"}));
      BOOST_CHECK_EXCEPTION(loss(x, labels, esp::ones({3}, esp::int64), LossReduction::mean), esp::TypeError,
                            says({name, "int64"}));
    }
}

BOOST_AUTO_TEST_CASE(weights_of_one_row_count_too) {
  const Variable x = esp::variable(scores().slice(0, 0, 1)), y = row_labels().slice(0, 0, 1);
  BOOST_TEST(
      difference(esp::softmax_cross_entropy(x, y, {.weights = Variable(esp::tensor({3.0}, esp::float64))}),
                 esp::softmax_cross_entropy(x, y) * 3) < 1e-12);
}

BOOST_AUTO_TEST_CASE(plans_take_weights_of_each_batch) {
  for (const auto& [name, labels, loss, divisor] : cases()) BOOST_TEST_CONTEXT(name) {
      const Variable x = esp::placeholder("x", {2, 4}, esp::float64),
                     y = esp::placeholder("y", two_rows(labels.shape()), labels.dtype()),
                     w = esp::placeholder("w", {2}, esp::float64);
      const Variable total = loss(x, y, w, LossReduction::mean);
      const auto plan =
          esp::stack({total, esp::sum(total.gradient(x) * 0.5)}).get_executor({.mode = esp::Mode::inference});
      const Variable leaf = esp::variable(scores());
      const Variable expected = loss(leaf, labels, row_weights(), LossReduction::mean);
      const Tensor found = plan.run({{"x", scores()}, {"y", labels}, {"w", row_weights()}});
      BOOST_TEST(difference(found, esp::stack({expected, esp::sum(expected.gradient(leaf) * 0.5)})) < 1e-12);
    }
}

BOOST_AUTO_TEST_CASE(weights_fit_the_rows_of_each_batch) {
  const auto refused = [](auto&& call) {
    BOOST_CHECK_EXCEPTION(call(), esp::ShapeError,
                          says({"weights of shape [5]", "losses of shape [1]", "row_weights_test.cpp"}));
  };
  for (const auto& [name, labels, loss, divisor] : cases()) BOOST_TEST_CONTEXT(name) {
      const Variable x = esp::placeholder("x", {2, 4}, esp::float64),
                     y = esp::placeholder("y", two_rows(labels.shape()), labels.dtype()),
                     w = esp::placeholder("w", {2}, esp::float64);
      const auto plan = loss(x, y, w, LossReduction::sum).get_executor({.mode = esp::Mode::inference});
      refused([&] {
        return plan.run({{"x", scores().slice(0, 0, 1)},
                         {"y", labels.slice(0, 0, 1)},
                         {"w", esp::ones({5}, esp::float64)}});
      });
    }
  // The last batch has one row, for which there are eight weights.
  const esp::data::Distributor feed({numbers({9, 4}, -1, 1, 1), esp::zeros({9}, esp::int64)},
                                    {.batch_size = 8});
  const auto [x, y] = feed.get_output_graphs<2>();
  const Variable loss = esp::softmax_cross_entropy(x, y, {.weights = Variable(esp::ones({8}, esp::float64))});
  BOOST_CHECK_EXCEPTION(
      loss.get_executor({.mode = esp::Mode::inference}).execute({.progress = false}), esp::ShapeError,
      says({"softmax_cross_entropy", "weights of shape [8]", "losses of shape [1]", "row_weights_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(alignments_have_weights) {
  const Variable x = esp::variable(numbers({5, 2, 3}, -1, 1, 3)), w = row_weights().slice(0, 0, 2);
  const Tensor labels = esp::tensor({{1, 2}, {2, 2}}), inputs = esp::tensor({5, 4}),
               lengths = esp::tensor({2, 1});
  const auto loss = [&](const Variable& weights, LossReduction reduction) {
    return nn::CtcLoss({.reduction = reduction, .weights = weights})(esp::log_softmax(x, 2), labels, inputs,
                                                                     lengths);
  };
  const Variable each = loss({}, LossReduction::none) * w;
  BOOST_TEST(difference(loss(w, LossReduction::none), each) < 1e-12);
  BOOST_TEST(difference(loss(w, LossReduction::sum), esp::sum(each)) < 1e-12);
  const Variable mean = esp::mean(each / esp::cast(lengths, esp::float64));
  BOOST_TEST(difference(loss(w, LossReduction::mean), mean) < 1e-12);
  BOOST_TEST(difference(loss(w, LossReduction::mean).gradient(x), mean.gradient(x)) < 1e-12);
  BOOST_CHECK_EXCEPTION(loss(esp::ones({3}), LossReduction::mean), esp::ShapeError,
                        says({"ctc_loss", "weights", "[3]"}));
}

BOOST_AUTO_TEST_SUITE_END()
