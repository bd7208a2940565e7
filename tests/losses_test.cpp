// Losses: values against their definitions, derivatives, reductions, weights, errors, and training on
// replicas.
#include "espalier/ops/functions/losses.h"

#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/nn/losses.h"
#include "replica_programs.h"
#include "temporary_folder.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::LossReduction;
using esp::Variable;

namespace {

enum class Targets { any, signs, probabilities };

/// A loss of elements: the target's values, the interval of the predictions, and the plain formula.
struct ElementLoss {
  std::string name;
  std::function<Variable(const Variable&, const Variable&, LossReduction)> loss;
  double (*formula)(double p, double t);
  Targets targets = Targets::any;
  double low = -2, high = 2;
};

const std::vector<ElementLoss>& element_losses() {
  static const std::vector<ElementLoss> list{
      {"mean_squared_error",
       [](const auto& p, const auto& t, auto r) { return esp::mean_squared_error(p, t, {.reduction = r}); },
       [](double p, double t) { return (p - t) * (p - t); }},
      {"mean_absolute_error",
       [](const auto& p, const auto& t, auto r) { return esp::mean_absolute_error(p, t, {.reduction = r}); },
       [](double p, double t) { return std::abs(p - t); }},
      {"smooth_l1_loss",
       [](const auto& p, const auto& t, auto r) {
         return esp::smooth_l1_loss(p, t, {.beta = 0.7, .reduction = r});
       },
       [](double p, double t) {
         const double d = std::abs(p - t);
         return d < 0.7 ? d * d / 1.4 : d - 0.35;
       }},
      {"huber_loss",
       [](const auto& p, const auto& t, auto r) {
         return esp::huber_loss(p, t, {.delta = 0.7, .reduction = r});
       },
       [](double p, double t) {
         const double d = std::abs(p - t);
         return d < 0.7 ? d * d / 2 : 0.7 * (d - 0.35);
       }},
      {"binary_cross_entropy",
       [](const auto& p, const auto& t, auto r) { return esp::binary_cross_entropy(p, t, {.reduction = r}); },
       [](double p, double t) { return -t * std::log(p) - (1 - t) * std::log(1 - p); },
       Targets::probabilities, 0.1, 0.9},
      {"binary_cross_entropy_with_logits",
       [](const auto& p, const auto& t, auto r) {
         return esp::binary_cross_entropy_with_logits(p, t, {.reduction = r});
       },
       [](double x, double t) {
         const double p = 1 / (1 + std::exp(-x));
         return -t * std::log(p) - (1 - t) * std::log(1 - p);
       },
       Targets::probabilities},
      {"positive_weights",
       [](const auto& p, const auto& t, auto r) {
         return esp::binary_cross_entropy_with_logits(
             p, t, {.positive_weights = esp::tensor(3.0, p.dtype()).to(p.device()), .reduction = r});
       },
       [](double x, double t) {
         const double p = 1 / (1 + std::exp(-x));
         return -3 * t * std::log(p) - (1 - t) * std::log(1 - p);
       },
       Targets::probabilities},
      {"kl_div", [](const auto& p, const auto& t, auto r) { return esp::kl_div(p, t, {.reduction = r}); },
       [](double p, double t) { return t * (std::log(t) - p); }, Targets::probabilities},
      {"kl_div of logarithms",
       [](const auto& p, const auto& t, auto r) {
         return esp::kl_div(p, t, {.log_target = true, .reduction = r});
       },
       [](double p, double t) { return std::exp(t) * (t - p); }},
      {"poisson_nll_loss",
       [](const auto& p, const auto& t, auto r) { return esp::poisson_nll_loss(p, t, {.reduction = r}); },
       [](double p, double t) { return std::exp(p) - t * p; }},
      {"poisson_nll_loss of rates, full",
       [](const auto& p, const auto& t, auto r) {
         return esp::poisson_nll_loss(p, t, {.log_input = false, .full = true, .reduction = r});
       },
       [](double p, double t) {
         return p - t * std::log(p + 1e-8) + (t > 1 ? t * std::log(t) - t + std::log(2 * M_PI * t) / 2 : 0);
       },
       Targets::any, 0.3, 3},
      {"soft_margin_loss",
       [](const auto& p, const auto& t, auto r) { return esp::soft_margin_loss(p, t, {.reduction = r}); },
       [](double p, double t) { return std::log(1 + std::exp(-t * p)); }, Targets::signs},
      {"hinge_loss",
       [](const auto& p, const auto& t, auto r) { return esp::hinge_loss(p, t, {.reduction = r}); },
       [](double p, double t) { return std::max(0.0, 1 - t * p); }, Targets::signs},
      {"hinge_loss squared",
       [](const auto& p, const auto& t, auto r) {
         return esp::hinge_loss(p, t, {.margin = 0.5, .power = 2, .reduction = r});
       },
       [](double p, double t) { return std::pow(std::max(0.0, 0.5 - t * p), 2); }, Targets::signs},
      {"hinge_embedding_loss",
       [](const auto& p, const auto& t, auto r) { return esp::hinge_embedding_loss(p, t, {.reduction = r}); },
       [](double p, double t) { return t > 0 ? p : std::max(0.0, 1 - p); }, Targets::signs},
      {"pairwise_rank_loss",
       [](const auto& p, const auto& t, auto r) { return esp::pairwise_rank_loss(p, t, {.reduction = r}); },
       [](double p, double t) { return std::max(0.0, 1 - p + t); }},
      {"margin_ranking_loss",
       [](const auto& p, const auto& t, auto r) {
         return esp::margin_ranking_loss(p, t, -1.0, {.margin = 0.3, .reduction = r});
       },
       [](double p, double t) { return std::max(0.0, 0.3 + p - t); }},
      {"gaussian_nll_loss",
       [](const auto& p, const auto& t, auto r) {
         return esp::gaussian_nll_loss(p, t, 0.5, {.full = true, .reduction = r});
       },
       [](double p, double t) { return (std::log(0.5) + (p - t) * (p - t) / 0.5 + std::log(2 * M_PI)) / 2; }},
  };
  return list;
}

esp::Tensor targets_of(Targets kind, const esp::Shape& shape) {
  esp::Tensor t = kind == Targets::probabilities ? numbers(shape, 0.1, 0.9, 5) : numbers(shape, -2, 2, 5);
  if (kind == Targets::signs)
    for (double& value : t.span<double>()) value = value < 0 ? -1 : 1;
  return t;
}

/// Vectors and labels: losses of rows, by plain loops.
double row_cosine(const Array& a, const Array& b, int64_t i) {
  double ab = 0, aa = 1e-12, bb = 1e-12;
  for (int64_t j = 0; j < a.shape[1]; ++j)
    ab += a({i, j}) * b({i, j}), aa += a({i, j}) * a({i, j}), bb += b({i, j}) * b({i, j});
  return ab / std::sqrt(aa * bb);
}
double row_distance(const Array& a, const Array& b, int64_t i, double p) {
  double total = 0;
  for (int64_t j = 0; j < a.shape[1]; ++j) total += std::pow(std::abs(a({i, j}) - b({i, j}) + 1e-6), p);
  return std::pow(total, 1 / p);
}

const esp::Tensor row_labels = esp::tensor({2, 0, 3}, esp::int64);

std::vector<OpCase> row_losses() {
  constexpr auto none = LossReduction::none;
  const esp::Shape shape{3, 4};
  const esp::Tensor a = numbers(shape, -1, 1, 1), b = numbers(shape, -1, 1, 2), c = numbers(shape, -1, 1, 3);
  const auto rows = [](auto f) {
    return [f](const std::vector<Array>& in) {
      return Array(esp::Shape{3}, [&](const Index& i) { return f(in, i[0]); });
    };
  };
  std::vector<OpCase> list;
  for (const double sign : {-1.0, 1.0})
    list.push_back({.name = "cosine_embedding_loss",
                    .op =
                        [=](const Variables& v) {
                          return esp::cosine_embedding_loss(v[0], v[1], sign,
                                                            {.margin = 0.1, .reduction = none});
                        },
                    .inputs = {a, b},
                    .reference = rows([=](const auto& in, int64_t i) {
                      const double cosine = row_cosine(in[0], in[1], i);
                      return sign > 0 ? 1 - cosine : std::max(0.0, cosine - 0.1);
                    }),
                    .roundings = 2});
  for (const double p : {1.0, 2.0, 3.0})
    for (const bool swap : {false, true})
      list.push_back({.name = "triplet_margin_loss",
                      .op =
                          [=](const Variables& v) {
                            return esp::triplet_margin_loss(
                                v[0], v[1], v[2], {.margin = 2, .p = p, .swap = swap, .reduction = none});
                          },
                      .inputs = {a, b, c},
                      .reference = rows([=](const auto& in, int64_t i) {
                        double away = row_distance(in[0], in[2], i, p);
                        if (swap) away = std::min(away, row_distance(in[1], in[2], i, p));
                        return std::max(0.0, row_distance(in[0], in[1], i, p) - away + 2);
                      }),
                      .tolerance32 = 1e-5,
                      .roundings = 0});
  for (const int power : {1, 2})
    list.push_back({.name = "multi_margin_loss",
                    .op =
                        [=](const Variables& v) {
                          return esp::multi_margin_loss(v[0], row_labels.to(v[0].device()),
                                                        {.margin = 0.8, .power = power, .reduction = none});
                        },
                    .inputs = {a},
                    .reference = rows([=](const auto& in, int64_t i) {
                      const int64_t y = row_labels.at<int64_t>({i});
                      double total = 0;
                      for (int64_t j = 0; j < 4; ++j)
                        if (j != y)
                          total += std::pow(std::max(0.0, 0.8 - in[0]({i, y}) + in[0]({i, j})), power);
                      return total / 4;
                    }),
                    .roundings = 2});
  // Labels end at the first negative one; the 1 behind it is none.
  const esp::Tensor sets =
      esp::tensor_from(std::vector<int64_t>{3, 0, -1, 1, -1, 2, 2, 2, 0, 1, 2, 3}, shape);
  list.push_back({.name = "multilabel_margin_loss",
                  .op =
                      [=](const Variables& v) {
                        return esp::multilabel_margin_loss(v[0], sets.to(v[0].device()), {.reduction = none});
                      },
                  .inputs = {a},
                  .reference = rows([=](const auto& in, int64_t i) {
                    std::vector<int64_t> labels;
                    for (int64_t j = 0; j < 4 && sets.at<int64_t>({i, j}) >= 0; ++j)
                      labels.push_back(sets.at<int64_t>({i, j}));
                    double total = 0;
                    for (const int64_t y : labels)
                      for (int64_t j = 0; j < 4; ++j)
                        if (std::find(labels.begin(), labels.end(), j) == labels.end())
                          total += std::max(0.0, 1 - in[0]({i, y}) + in[0]({i, j}));
                    return total / 4;
                  }),
                  .roundings = 2});
  return list;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(losses)

BOOST_AUTO_TEST_CASE(losses_of_elements_are_their_formulas) {
  for (const ElementLoss& c : element_losses()) {
    const esp::Tensor t = targets_of(c.targets, {3, 4});
    BOOST_TEST_CONTEXT(c.name)
    check_op({.name = c.name,
              .op = [&](const Variables& v) { return c.loss(v[0], v[1], LossReduction::none); },
              .inputs = {numbers({3, 4}, c.low, c.high, 1), t},
              .reference = elementwise(c.formula),
              .differentiable = {0},
              .tolerance32 = 1e-5,
              .roundings = 0});
  }
}

BOOST_AUTO_TEST_CASE(losses_of_rows_are_their_formulas) {
  for (const OpCase& c : row_losses()) BOOST_TEST_CONTEXT(c.name) check_op(c);
}

BOOST_AUTO_TEST_CASE(reductions_and_weights) {
  for (const ElementLoss& c : element_losses()) BOOST_TEST_CONTEXT(c.name) {
      const Variable p = numbers({3, 4}, c.low, c.high, 1), t = targets_of(c.targets, {3, 4});
      const Variable each = c.loss(p, t, LossReduction::none);
      BOOST_TEST(each.shape() == esp::Shape({3, 4}));
      BOOST_TEST(difference(c.loss(p, t, LossReduction::mean).value(), esp::mean(each).value()) < 1e-12);
      BOOST_TEST(difference(c.loss(p, t, LossReduction::sum).value(), esp::sum(each).value()) < 1e-12);
    }
  const Variable p = numbers({3, 4}, -1, 1, 1), t = numbers({3, 4}, -1, 1, 2), w = numbers({3, 1}, 0, 2, 3);
  const Variable weighted = esp::mean(esp::square(p - t) * w);
  BOOST_TEST(difference(esp::mean_squared_error(p, t, {.weights = w}).value(), weighted.value()) < 1e-12);
  BOOST_TEST(difference(nn::MeanSquared({.weights = w})(p, t).value(), weighted.value()) < 1e-12);
  const Variable s = targets_of(Targets::signs, {3, 4}), r = targets_of(Targets::signs, {3});
  const Variable o = numbers({3, 4}, -1, 1, 8), v3 = numbers({3}, 0, 2, 3), q = numbers({3, 4}, 0.1, 1, 4);
  const esp::Tensor sets = esp::tensor({{3, 0, -1, 1}, {-1, 2, 2, 2}, {0, 1, 2, 3}});
  const struct {
    const char* name;
    Variable weights;
    std::function<Variable(const Variable&, LossReduction)> loss;
  } table[] = {
      {"kl_div", w, [&](auto k, auto f) { return nn::KlDivergence({.weights = k, .reduction = f})(p, q); }},
      {"poisson", w, [&](auto k, auto f) { return nn::Poisson({.weights = k, .reduction = f})(p, t); }},
      {"gaussian", w, [&](auto k, auto f) { return nn::Gaussian({.weights = k, .reduction = f})(p, t, q); }},
      {"hinge_embedding", w,
       [&](auto k, auto f) { return nn::HingeEmbedding({.weights = k, .reduction = f})(p, s); }},
      {"pairwise_rank", w,
       [&](auto k, auto f) { return nn::PairwiseRank({.weights = k, .reduction = f})(p, t); }},
      {"margin_ranking", w,
       [&](auto k, auto f) { return nn::MarginRanking({.weights = k, .reduction = f})(p, t, s); }},
      {"cosine_embedding", v3,
       [&](auto k, auto f) { return nn::CosineEmbedding({.weights = k, .reduction = f})(p, t, r); }},
      {"triplet_margin", v3,
       [&](auto k, auto f) { return nn::TripletMargin({.weights = k, .reduction = f})(p, t, o); }},
      {"triplet_margin_with_distance", v3,
       [&](auto k, auto f) {
         return esp::triplet_margin_with_distance_loss(p, t, o, {.weights = k, .reduction = f});
       }},
      {"multilabel_margin", v3,
       [&](auto k, auto f) { return nn::MultiLabelMargin({.weights = k, .reduction = f})(p, sets); }},
  };
  for (const auto& [name, k, loss] : table) BOOST_TEST_CONTEXT(name) {
      const Variable each = loss({}, LossReduction::none) * k;
      BOOST_TEST(difference(loss(k, LossReduction::none).value(), each.value()) < 1e-12);
      BOOST_TEST(difference(loss(k, LossReduction::mean).value(), esp::mean(each).value()) < 1e-12);
      BOOST_CHECK_EXCEPTION(loss(esp::ones({2}), LossReduction::mean), esp::ShapeError,
                            says({name, "weights", "[2]"}));
    }
  BOOST_TEST(
      difference(esp::kl_div(p, q, {.batch_mean = true, .weights = w}).value(),
                 (esp::mean(esp::kl_div(p, q, {.reduction = LossReduction::none}) * w) * 4.0).value()) <
      1e-12);
  BOOST_TEST(difference(esp::kl_div(p, q, {.batch_mean = true}).value(),
                        (esp::kl_div(p, q, {.reduction = LossReduction::sum}) / 3.0).value()) < 1e-12);
  const Variable v = numbers({3, 1}, 0.2, 1, 6);
  BOOST_TEST(difference(esp::gaussian_nll_loss(p, t, v).value(),
                        esp::mean((esp::log(v) + esp::square(p - t) / v) * 0.5).value()) < 1e-12);
  const Variable y = targets_of(Targets::probabilities, {3, 4}), k = numbers({4}, 0, 2, 7);
  const Variable each =
      esp::binary_cross_entropy_with_logits(p, y, {.weights = k, .reduction = LossReduction::none});
  BOOST_TEST(difference(esp::multilabel_soft_margin_loss(p, y, {.class_weights = k}).value(),
                        esp::mean(esp::mean(each, -1)).value()) < 1e-12);
  const Variable scored = esp::multi_margin_loss(p, row_labels, {.reduction = LossReduction::none});
  BOOST_TEST(difference(esp::multi_margin_loss(p, row_labels, {.class_weights = k}).value(),
                        esp::mean(scored * esp::gather(k, row_labels)).value()) < 1e-12);
}

BOOST_AUTO_TEST_CASE(cross_entropy_of_logits_of_their_logarithms_and_of_probabilities_is_one) {
  const Variable x = numbers({3, 4}, -3, 3, 1), k = numbers({4}, 0.1, 2, 7);
  for (const esp::CrossEntropyOptions& options :
       {esp::CrossEntropyOptions{}, {.class_weights = k}, {.ignored_label = 0}, {.label_smoothing = 0.2}}) {
    const esp::Tensor whole = esp::softmax_cross_entropy(x, row_labels, options).value();
    BOOST_TEST(difference(esp::nll_loss(esp::log_softmax(x), row_labels, options).value(), whole) < 1e-12);
    BOOST_TEST(difference(esp::categorical_cross_entropy(esp::softmax(x), row_labels, options).value(),
                          whole) < 1e-12);
  }
  BOOST_TEST(nn::NegativeLogLikelihood()(esp::log_softmax(x), row_labels).item() ==
             nn::SoftmaxCrossEntropy()(x, row_labels).item());
  BOOST_TEST(difference(nn::CrossEntropy()(esp::softmax(x), row_labels).value(),
                        nn::SoftmaxCrossEntropy()(x, row_labels).value()) < 1e-12);
}

BOOST_AUTO_TEST_CASE(quadratic_losses_are_curved_where_prediction_and_target_are_equal) {
  const esp::Variable x = esp::variable(esp::tensor({1.0, 2.0, 3.0}));
  const esp::Tensor target = esp::tensor({1.0, 2.5, 3.0});
  for (const esp::Variable& loss : {esp::huber_loss(x, target, {.reduction = esp::LossReduction::sum}),
                                    esp::smooth_l1_loss(x, target, {.reduction = esp::LossReduction::sum})})
    BOOST_TEST(difference(loss.gradient(x).gradient(x).value(), esp::tensor({1.0, 1.0, 1.0})) == 0);
}

BOOST_AUTO_TEST_CASE(extremes_stay_finite) {
  for (const Variable& far : {Variable(esp::full({2}, 1e10F)), esp::parameter(esp::full({2}, 1e10F))})
    BOOST_TEST(esp::smooth_l1_loss(far, esp::zeros({2}), {.beta = 1e-30}).item() == 1e10F);
  const Variable x = esp::variable(esp::tensor({1000.0, -1000.0, 0.0}, esp::float64));
  for (const double t : {0.0, 1.0}) {
    const Variable loss = esp::binary_cross_entropy_with_logits(x, t, {.reduction = LossReduction::sum});
    BOOST_TEST(loss.item() == 1000 + std::log(2.0), boost::test_tools::tolerance(1e-12));
    const esp::Tensor slope = loss.gradient(x).value();
    BOOST_TEST(slope.at<double>({0}) == 1 - t);
    BOOST_TEST(slope.at<double>({1}) == -t);
    BOOST_TEST(slope.at<double>({2}) == 0.5 - t);
  }
  const Variable p = esp::variable(esp::tensor({0.0f, 1.0f}));
  const Variable wrong = esp::binary_cross_entropy(p, esp::tensor({1.0f, 0.0f}));
  BOOST_TEST(wrong.item() == 100);
  BOOST_TEST(esp::binary_cross_entropy(p, esp::tensor({0.0f, 1.0f})).item() == 0);
  BOOST_TEST(difference(wrong.gradient(p).value(), esp::zeros({2})) == 0);
  const Variable q = esp::variable(esp::tensor({0.0, 0.5}, esp::float64));
  const Variable divergence = esp::kl_div(esp::tensor({-1.0, -2.0}, esp::float64), q);
  BOOST_TEST(divergence.item() == 0.5 * (std::log(0.5) + 2) / 2, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(std::isfinite(esp::sum(divergence.gradient(q)).item()));
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  const Variable x = esp::zeros({2, 3}), y = esp::zeros({3, 2}), d = esp::zeros({2, 3}, esp::float64);
  const esp::Tensor labels = esp::zeros({2}, esp::int64);
  for (const ElementLoss& c : element_losses()) BOOST_TEST_CONTEXT(c.name) {
      const std::string name = c.name.substr(0, c.name.find(' '));
      if (name.find('_') == name.npos || name == "positive_weights") continue;
      BOOST_CHECK_EXCEPTION(c.loss(x, y, LossReduction::mean), esp::ShapeError,
                            says({name, "[2, 3]", "[3, 2]", "losses_test.cpp"}));
      BOOST_CHECK_EXCEPTION(c.loss(x, d, LossReduction::mean), esp::TypeError,
                            says({name, "float32", "float64", "losses_test.cpp"}));
      BOOST_CHECK_EXCEPTION(c.loss(labels, labels, LossReduction::mean), esp::TypeError,
                            says({name, "int64"}));
      BOOST_CHECK_EXCEPTION(c.loss(Variable(), x, LossReduction::mean), esp::Error,
                            says({name, "undefined"}));
    }
  BOOST_CHECK_EXCEPTION(esp::mean_absolute_error(x, x, {.weights = esp::ones({2})}), esp::ShapeError,
                        says({"mean_absolute_error", "[2]", "[2, 3]", "losses_test.cpp"}));
  BOOST_CHECK_EXCEPTION(esp::mean_absolute_error(x, x, {.weights = esp::ones({3}, esp::int64)}),
                        esp::TypeError, says({"mean_absolute_error", "int64"}));
  BOOST_CHECK_EXCEPTION(esp::smooth_l1_loss(x, x, {.beta = 0}), esp::Error, says({"beta", "0"}));
  BOOST_CHECK_EXCEPTION(nn::Huber({.delta = -1})(x, x), esp::Error, says({"delta", "-1", "losses_test.cpp"}));
  BOOST_CHECK_EXCEPTION(esp::hinge_loss(x, x, {.power = 3}), esp::Error, says({"power", "3"}));
  BOOST_CHECK_EXCEPTION(esp::gaussian_nll_loss(x, x, esp::ones({2})), esp::ShapeError,
                        says({"gaussian_nll_loss", "[2]", "[2, 3]"}));
  BOOST_CHECK_EXCEPTION(esp::gaussian_nll_loss(x, x, x, {.epsilon = 0}), esp::Error, says({"epsilon"}));
  BOOST_CHECK_EXCEPTION(esp::triplet_margin_loss(x, x, y), esp::ShapeError,
                        says({"triplet_margin_loss", "[3, 2]", "losses_test.cpp"}));
  BOOST_CHECK_EXCEPTION(esp::triplet_margin_loss(x, x, x, {.p = 0.5}), esp::Error, says({"0.5"}));
  BOOST_CHECK_EXCEPTION(esp::cosine_embedding_loss(x, x, x), esp::ShapeError,
                        says({"cosine_embedding_loss", "[2]", "[2, 3]"}));
  BOOST_CHECK_EXCEPTION(esp::multi_margin_loss(x, x), esp::TypeError, says({"labels", "float32"}));
  BOOST_CHECK_EXCEPTION(esp::multi_margin_loss(x, esp::zeros({3}, esp::int64)), esp::ShapeError,
                        says({"multi_margin_loss", "[3]", "[2, 3]"}));
  BOOST_CHECK_EXCEPTION(esp::multi_margin_loss(x, esp::tensor({0, 3})), esp::IndexError, says({"3"}));
  BOOST_CHECK_EXCEPTION(esp::multi_margin_loss(x, labels, {.class_weights = esp::ones({2})}), esp::ShapeError,
                        says({"class weights", "[2]"}));
  BOOST_CHECK_EXCEPTION(esp::multilabel_margin_loss(x, labels), esp::ShapeError, says({"[2]", "[2, 3]"}));
  BOOST_CHECK_EXCEPTION(esp::nll_loss(x, esp::tensor({0, 3})), esp::IndexError, says({"nll_loss", "3"}));
  BOOST_CHECK_EXCEPTION(esp::nll_loss(x, y), esp::ShapeError, says({"nll_loss", "log probabilities"}));
}

BOOST_AUTO_TEST_CASE(training_is_that_of_one_device) {
  const auto train = [](const std::function<Variable(const Variable&, const Variable&)>& loss, double shift,
                        std::vector<esp::Device> devices) {
    const esp::data::Distributor feed({numbers({11, 4}, -1, 1, 1), numbers({11, 3}, 0.1, 0.9, 2)},
                                      {.batch_size = 4});
    const auto [x, t] = feed.get_output_graphs<2>();
    const Variable w = esp::parameter(numbers({4, 3}, -0.1, 0.1, 3), "w");
    const esp::Executor executor =
        loss(esp::matmul(x, w) + shift, t)
            .get_executor({.optimizer = esp::optim::Sgd(0.01), .devices = devices});
    (void)executor.execute({.epochs = 2, .progress = false});
    return w.value().clone();
  };
  std::vector<std::pair<std::string, std::function<Variable(const Variable&, const Variable&)>>> list;
  for (const ElementLoss& c : element_losses())
    list.emplace_back(
        c.name, [&](const Variable& p, const Variable& t) { return c.loss(p, t, LossReduction::mean); });
  list.emplace_back("triplet",
                    [](const Variable& p, const Variable& t) { return nn::TripletMargin()(p, t, 1.0 - t); });
  list.emplace_back("cosine", [](const Variable& p, const Variable& t) {
    return nn::CosineEmbedding()(p, t, esp::sign(esp::sum(t, -1) - 1.5));
  });
  list.emplace_back("multi_margin", [](const Variable& p, const Variable& t) {
    return nn::MultiMargin()(p, esp::argmax(t));
  });
  list.emplace_back("multilabel_margin", [](const Variable& p, const Variable& t) {
    return nn::MultiLabelMargin()(p, esp::cast(t * 4.0 - 1.0, esp::int64));
  });
  list.emplace_back("multilabel_soft_margin",
                    [](const Variable& p, const Variable& t) { return nn::MultiLabelSoftMargin()(p, t); });
  list.emplace_back("batch mean", [](const Variable& p, const Variable& t) {
    return nn::KlDivergence({.batch_mean = true})(p, t);
  });
  list.emplace_back("nll", [](const Variable& p, const Variable& t) {
    return nn::NegativeLogLikelihood({.class_weights = esp::tensor({1.0, 2.0, 3.0}, esp::float64)})(
        esp::log_softmax(p), esp::argmax(t));
  });
  for (const auto& [name, loss] : list) BOOST_TEST_CONTEXT(name) {
      const esp::Tensor one = train(loss, 0.5, {});
      BOOST_TEST(difference(train(loss, 0.5, cpus(2)), one) < 1e-10);
      BOOST_TEST(difference(one, numbers({4, 3}, -0.1, 0.1, 3)) > 1e-6);
    }
}

BOOST_AUTO_TEST_SUITE_END()
