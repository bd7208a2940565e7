// Functions composed of others: affine maps, dropouts, normal forms, losses with a distance, windows of
// signals.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/dropouts.h"
#include "espalier/ops/functions/hardmax.h"
#include "espalier/ops/functions/linear.h"
#include "espalier/ops/functions/pair_distances.h"
#include "espalier/ops/functions/signal_windows.h"
#include "espalier/ops/functions/standardize.h"
#include "espalier/ops/functions/triplet_losses.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;
using esp::Variable;

BOOST_AUTO_TEST_SUITE(composed_functions)

BOOST_AUTO_TEST_CASE(linear) {
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{4}})
    check_op({.name = "linear",
              .op = [](const Variables& v) { return esp::linear(v[0], v[1], v[2]); },
              .inputs = {numbers(shape), numbers({5, 4}, -2, 2, 1), numbers({5}, -2, 2, 2)},
              .reference =
                  [&](const std::vector<Array>& in) {
                    std::vector<int64_t> sizes(shape.begin(), shape.end());
                    sizes.back() = 5;
                    return Array(Shape(sizes), [&](const Index& i) {
                      Index at = i;
                      double sum = in[2]({i.back()});
                      for (int64_t k = 0; k < 4; ++k) {
                        at.back() = k;
                        sum += in[0](at) * in[1]({i.back(), k});
                      }
                      return sum;
                    });
                  },
              .tolerance32 = 1e-5,
              .roundings = 4});
  const Tensor x = numbers({3, 4}), w = numbers({4}, -2, 2, 1);
  BOOST_TEST(difference(esp::linear(x, w).value(), esp::sum(x * Variable(w), 1).value()) < 1e-13);
  BOOST_TEST(esp::linear(w, w).rank() == 0u);
  BOOST_CHECK_EXCEPTION(esp::linear(x, numbers({5, 3})), esp::ShapeError,
                        says({"linear", "[3, 4]", "[5, 3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::linear(x, numbers({5, 4}), numbers({4})), esp::ShapeError,
                        says({"linear", "[4]", "[3, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::linear(x, numbers({5, 4}), numbers({2, 3, 5})), esp::ShapeError,
                        says({"linear", "bias", "[2, 3, 5]", here()}));
  BOOST_CHECK_EXCEPTION(esp::linear(x, esp::ones({5, 4})), esp::TypeError,
                        says({"linear", "float32", here()}));
}

BOOST_AUTO_TEST_CASE(pdist) {
  for (const double p : {1.0, 2.0, 3.0, static_cast<double>(INFINITY)})
    check_op({.name = "pdist",
              .op = [=](const Variables& v) { return esp::pdist(v[0], p); },
              .inputs = {numbers({4, 3})},
              .reference =
                  [=](const std::vector<Array>& in) {
                    std::vector<double> all;
                    for (int64_t i = 0; i < 4; ++i)
                      for (int64_t j = i + 1; j < 4; ++j) {
                        double sum = 0, largest = 0;
                        for (int64_t k = 0; k < 3; ++k) {
                          const double d = std::abs(in[0]({i, k}) - in[0]({j, k}));
                          sum += std::pow(d, p);
                          largest = std::max(largest, d);
                        }
                        all.push_back(std::isinf(p) ? largest : std::pow(sum, 1 / p));
                      }
                    return Array({6}, [&](const Index& i) { return all[static_cast<size_t>(i[0])]; });
                  },
              .tolerance = 1e-11,
              .tolerance32 = 1e-5,
              .roundings = 4});
  for (const int64_t n : {0, 1, 2})
    BOOST_TEST(esp::pdist(esp::ones({n, 3})).shape() == Shape({n * (n - 1) / 2}));
  // Equal rows have a distance and a gradient of 0.
  const Variable equal = esp::variable(esp::ones({3, 2}));
  const esp::Tensor slope = esp::sum(esp::pdist(equal)).gradient(equal).value();
  for (const float g : slope.span<float>()) BOOST_TEST(g == 0);
  BOOST_CHECK_EXCEPTION(esp::pdist(esp::ones({3})), esp::ShapeError, says({"pdist", "[3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::pdist(equal, 0), esp::Error, says({"pdist", "0", here()}));

  // The rows of a batch: a short last one has fewer pairs.
  const esp::data::Distributor feed({numbers({7, 3})}, {.batch_size = 4});
  const Variable x = feed.get_output_graphs()[0], pairs = esp::pdist(x);
  BOOST_TEST(pairs.forward().shape() == Shape({6}));
  BOOST_TEST(difference(esp::pdist(numbers({7, 3}).slice(0, 4, 7)).value(), pairs.forward().value()) < 1e-13);
  const Variable fed = esp::placeholder("x", {-1, 3}, esp::float64);
  const esp::Executor executor = esp::pdist(fed).get_executor();
  for (const int64_t n : {5, 3, 30})
    BOOST_TEST(difference(esp::pdist(numbers({n, 3})).value(), executor.run({{"x", numbers({n, 3})}})) <
               1e-12);
}

BOOST_AUTO_TEST_CASE(triplets_with_a_distance) {
  const Tensor a = numbers({4, 3}), p = numbers({4, 3}, -2, 2, 1), n = numbers({4, 3}, -2, 2, 2);
  for (const bool swap : {false, true})
    BOOST_TEST(difference(esp::triplet_margin_loss(a, p, n, {.swap = swap}).value(),
                          esp::triplet_margin_with_distance_loss(a, p, n, {.swap = swap}).value()) == 0);
  const auto cosine = [](const Variable& x, const Variable& y) { return 1.0 - esp::cosine_similarity(x, y); };
  check_op({.name = "triplet_margin_with_distance_loss",
            .op =
                [=](const Variables& v) {
                  return esp::triplet_margin_with_distance_loss(
                      v[0], v[1], v[2],
                      {.distance = cosine, .margin = 2, .reduction = esp::LossReduction::none});
                },
            .inputs = {a, p, n},
            .reference =
                [](const std::vector<Array>& in) {
                  const auto distance = [](const Array& x, const Array& y, int64_t row) {
                    double xy = 0, xx = 0, yy = 0;
                    for (int64_t k = 0; k < 3; ++k) {
                      xy += x({row, k}) * y({row, k});
                      xx += x({row, k}) * x({row, k});
                      yy += y({row, k}) * y({row, k});
                    }
                    return 1 - xy / std::sqrt(xx * yy);
                  };
                  return Array({4}, [&](const Index& i) {
                    return std::max(0.0, distance(in[0], in[1], i[0]) - distance(in[0], in[2], i[0]) + 2);
                  });
                },
            .roundings = 4});
  BOOST_CHECK_EXCEPTION(esp::triplet_margin_with_distance_loss(a, p, numbers({3, 3})), esp::ShapeError,
                        says({"triplet_margin_with_distance_loss", "[3, 3]", here()}));
  BOOST_CHECK_EXCEPTION(
      esp::triplet_margin_with_distance_loss(
          a, p, n, {.distance = [](const Variable&, const Variable&) { return Variable(); }}),
      esp::Error, says({"triplet_margin_with_distance_loss", "no Variable", here()}));
}

BOOST_AUTO_TEST_CASE(dropouts_keep_mean_and_variance) {
  esp::seed(3);
  const Variable x = esp::randn({400, 50, 4, 2});
  for (const bool features : {false, true}) {
    const auto drop = [&](const Variable& v, double rate) {
      return features ? esp::feature_alpha_dropout(v, rate) : esp::alpha_dropout(v, rate);
    };
    const Variable y = drop(x, 0.3);
    BOOST_TEST(std::abs(esp::mean(y).item()) < 0.03);
    BOOST_TEST(std::abs(esp::mean(esp::square(y)).item() - 1) < 0.03);
    // What is dropped has one value, whose share is the rate; of features whole channels have it.
    const double a = 1 / std::sqrt(0.7 * (1 + 0.3 * 1.7580993408473766 * 1.7580993408473766));
    const Variable dropped =
        esp::cast(esp::less(esp::abs(y - (0.3 - 1) * a * 1.7580993408473766), 1e-5), esp::float32);
    BOOST_TEST(std::abs(esp::mean(dropped).item() - 0.3) < 0.02);
    const Variable of_channel = esp::mean(dropped, esp::Axes{2, 3});
    const double partly = esp::sum(esp::cast(of_channel * (1.0 - of_channel) > 1e-3, esp::float32)).item();
    BOOST_TEST((partly == 0) == features);
    BOOST_TEST(difference(x.value(), drop(x, 0).value()) == 0);
    const Variable fed = esp::placeholder("x", {-1, 3, 2});
    const esp::Executor executor = drop(fed, 0.5).get_executor({.mode = esp::Mode::inference});
    const Tensor some = numbers({4, 3, 2}).to(esp::float32);
    BOOST_TEST(difference(some, executor.run({{"x", some}})) == 0);
    BOOST_CHECK_EXCEPTION(drop(x, 1), esp::Error,
                          says({"alpha_dropout", "1", "composed_functions_test.cpp"}));
    BOOST_CHECK_EXCEPTION(drop(esp::tensor({1}), 0.5), esp::TypeError, says({"alpha_dropout", "int64"}));
  }
  BOOST_CHECK_EXCEPTION(esp::feature_alpha_dropout(esp::ones({3}), 0.5), esp::ShapeError,
                        says({"feature_alpha_dropout", "[3]", here()}));
  BOOST_TEST(esp::feature_alpha_dropout(esp::ones({3, 2}), 0.5).shape() == Shape({3, 2}));
}

BOOST_AUTO_TEST_CASE(hardmax) {
  for (const int64_t axis : {0, 1, -1})
    check_op({.name = "hardmax",
              .op = [=](const Variables& v) { return esp::hardmax(v[0], axis); },
              .inputs = {numbers({3, 4, 2})},
              .reference =
                  [=](const std::vector<Array>& in) {
                    const auto at = static_cast<size_t>(axis < 0 ? axis + 3 : axis);
                    return Array({3, 4, 2}, [&](const Index& i) {
                      Index other = i;
                      double result = 1;
                      for (int64_t k = 0; k < in[0].shape[static_cast<int64_t>(at)]; ++k) {
                        other[at] = k;
                        if (in[0](other) > in[0](i) || (k < i[at] && in[0](other) == in[0](i))) result = 0;
                      }
                      return result;
                    });
                  },
              .order = 0});
  BOOST_TEST(difference(esp::tensor({0.0f, 1.0f, 0.0f}),
                        esp::hardmax(esp::tensor({1.0f, 2.0f, 2.0f})).value()) == 0);
  const Variable x = esp::variable(esp::tensor({1.0f, 2.0f}));
  const esp::Tensor slope = esp::sum(esp::hardmax(x) * x).gradient(x).value();
  for (const float g : slope.span<float>()) BOOST_TEST((g == 0 || g == 1));
  BOOST_TEST(esp::hardmax(esp::ones({0, 3})).shape() == Shape({0, 3}));
  BOOST_CHECK_EXCEPTION(esp::hardmax(esp::ones({3, 0})), esp::ShapeError,
                        says({"hardmax", "[3, 0]", here()}));
  BOOST_CHECK_EXCEPTION(esp::hardmax(esp::tensor({1})), esp::TypeError, says({"hardmax", "int64", here()}));
  const Variable fed = esp::placeholder("x", {-1, 3});
  const esp::Executor executor = esp::hardmax(fed, 0).get_executor();
  for (const int64_t rows : {4, 2}) {
    const Tensor some = numbers({rows, 3}).to(esp::float32);
    BOOST_TEST(difference(esp::hardmax(some, 0).value(), executor.run({{"x", some}})) == 0);
  }
}

BOOST_AUTO_TEST_CASE(mean_variance_normalization) {
  check_op({.name = "mean_variance_normalization",
            .op =
                [](const Variables& v) {
                  return esp::mean_variance_normalization(v[0], {0, 2}, 0.1);
                },
            .inputs = {numbers({3, 2, 4})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({3, 2, 4}, [&](const Index& i) {
                    double sum = 0, squares = 0;
                    for (int64_t n = 0; n < 3; ++n)
                      for (int64_t k = 0; k < 4; ++k) sum += in[0]({n, i[1], k}) / 12;
                    for (int64_t n = 0; n < 3; ++n)
                      for (int64_t k = 0; k < 4; ++k) squares += std::pow(in[0]({n, i[1], k}) - sum, 2) / 12;
                    return (in[0](i) - sum) / (std::sqrt(squares) + 0.1);
                  });
                },
            .roundings = 4});
  const Tensor equal = esp::mean_variance_normalization(esp::ones({2, 3, 4, 4})).value();
  for (const float element : equal.span<float>()) BOOST_TEST(element == 0);
  BOOST_CHECK_EXCEPTION(esp::mean_variance_normalization(esp::ones({2, 3})), esp::ShapeError,
                        says({"mean_variance_normalization", "axis 2", here()}));
  BOOST_CHECK_EXCEPTION(esp::mean_variance_normalization(esp::ones({2}), 0, -1), esp::Error,
                        says({"mean_variance_normalization", "-1", here()}));
}

// A class adds to the loss if its score is less than the margin below the label's; here, more than 1 above.
BOOST_AUTO_TEST_CASE(margins_between_classes_may_be_negative) {
  const Tensor scores = esp::tensor({{1.0, 3.0, 2.5}, {2.0, 0.5, 2.5}}, esp::float64),
               labels = esp::tensor({0, 2});
  const auto losses = [&](int power) {
    return esp::multi_margin_loss(scores, labels,
                                  {.margin = -1, .power = power, .reduction = esp::LossReduction::none})
        .value();
  };
  BOOST_TEST(difference(losses(1), esp::tensor({(1 + 0.5) / 3, 0.0}, esp::float64)) < 1e-15);
  BOOST_TEST(difference(losses(2), esp::tensor({(1 + 0.25) / 3, 0.0}, esp::float64)) < 1e-15);
}

// PyTorch's figures.
BOOST_AUTO_TEST_CASE(windows_of_signals) {
  const auto is = [](const std::vector<double>& wanted, const Tensor& window) {
    return difference(esp::tensor_from(wanted, {static_cast<int64_t>(wanted.size())}), window) < 1e-15;
  };
  const esp::SignalWindowOptions whole{.dtype = esp::float64},
      symmetric{.periodic = false, .dtype = esp::float64};
  BOOST_TEST(is({0, 0.3454915028125262, 0.9045084971874737, 0.9045084971874737, 0.3454915028125264},
                esp::hann_window(5, whole)));
  BOOST_TEST(is({0, 0.5, 1, 0.5, 0}, esp::hann_window(5, symmetric)));
  BOOST_TEST(is({0.08, 0.54, 1, 0.54, 0.08}, esp::hamming_window(5, symmetric)));
  BOOST_TEST(is({0, 0.34, 1, 0.34, 0}, esp::blackman_window(5, symmetric)));
  BOOST_TEST(is({0, 0.34, 1, 0.34}, esp::blackman_window(4, whole)));
  BOOST_TEST(is({2 * 25.0 / 46 - 1, 1}, esp::hamming_window(2, whole, 25.0 / 46)));
  for (const auto& window : {esp::hann_window(1), esp::hamming_window(1), esp::blackman_window(1)})
    BOOST_TEST(window.item() == 1);
  BOOST_TEST(esp::hann_window(0).shape() == Shape({0}));
  BOOST_TEST(esp::hann_window(3).dtype() == esp::float32);
  BOOST_CHECK_EXCEPTION(esp::hann_window(-1), esp::ShapeError, says({"hann_window", "-1", here()}));
  BOOST_CHECK_EXCEPTION(esp::blackman_window(3, {.dtype = esp::int64}), esp::TypeError,
                        says({"blackman_window", "int64", here()}));
}

BOOST_AUTO_TEST_CASE(labels_outside_the_classes_name_the_loss) {
  const esp::Tensor x = esp::ones({2, 3}), y = esp::tensor({1, 7});
  const auto says_at_first = [](const std::string& name) {
    return [name](const esp::Error& e) {
      return std::string(e.what()).starts_with(name + ": label 7 of row 1");
    };
  };
  BOOST_CHECK_EXCEPTION(esp::multi_margin_loss(x, y).value(), esp::IndexError,
                        says_at_first("multi_margin_loss"));
  BOOST_CHECK_EXCEPTION(esp::sparsemax_loss(x, y).value(), esp::IndexError, says_at_first("sparsemax_loss"));
  BOOST_CHECK_EXCEPTION(esp::top_k_accuracy(x, y, 2).value(), esp::IndexError,
                        says_at_first("top_k_accuracy"));
}

BOOST_AUTO_TEST_SUITE_END()
