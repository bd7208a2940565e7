// Sparsemax and samples by the Gumbel trick.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/ops/functions/losses.h"
#include "espalier/ops/functions/simplex.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// By sorting, as in the paper.
Array sparsemax_of_rows(const std::vector<Array>& in) {
  const int64_t n = in[0].shape[-1];
  return Array(in[0].shape, [&](const Index& at) {
    std::vector<double> row;
    Index i = at;
    for (i.back() = 0; i.back() < n; ++i.back()) row.push_back(in[0](i));
    std::sort(row.rbegin(), row.rend());
    double total = 0, bound = 0;
    for (size_t k = 0; k < row.size(); ++k) {
      total += row[k];
      const auto count = static_cast<double>(k + 1);
      if (1 + count * row[k] > total) bound = (total - 1) / count;
    }
    return std::max(in[0](at) - bound, 0.0);
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simplex)

BOOST_AUTO_TEST_CASE(sparse_rows) {
  for (const esp::Shape& shape : {esp::Shape{3, 7}, {40}, {2, 3, 1}, {2, 0, 3}, {1, 300}, {1}})
    check_op({.name = "sparsemax",
              .op = [](const Variables& x) { return esp::sparsemax(x[0]); },
              .inputs = {numbers(shape)},
              .reference = sparsemax_of_rows,
              .order = shape.elements() > 100 ? 1 : 2});
  check_op({.name = "sparsemax of one winner",
            .op = [](const Variables& x) { return esp::sparsemax(x[0] * 50.0); },
            .inputs = {numbers({3, 7})},
            .reference =
                [](const std::vector<Array>& in) {
                  return sparsemax_of_rows(
                      {Array(in[0].shape, [&](const Index& i) { return 50 * in[0](i); })});
                },
            .roundings = 0});
}

BOOST_AUTO_TEST_CASE(losses_of_sparse_rows) {
  const auto loss = [](const std::vector<Array>& in, const Array& q) {
    const Array p = sparsemax_of_rows(in);
    return Array(esp::Shape{in[0].shape[0]}, [&](const Index& row) {
      double total = 0;
      for (int64_t j = 0; j < in[0].shape[1]; ++j) {
        const Index i{row[0], j};
        total += p(i) * (in[0](i) - p(i) / 2) - q(i) * (in[0](i) - q(i) / 2);
      }
      return total;
    });
  };
  constexpr auto none = esp::LossReduction::none;
  const esp::Shape shape{4, 6};
  check_op({.name = "sparsemax_loss",
            .op =
                [=](const Variables& x) {
                  return esp::sparsemax_loss(x[0], esp::softmax(x[1]), {.reduction = none});
                },
            .inputs = {numbers(shape), numbers(shape, -1, 1, 1)},
            .reference =
                [=](const std::vector<Array>& in) {
                  return loss(in, Array(shape, [&](const Index& i) {
                                double total = 0;
                                for (Index j{i[0], 0}; j[1] < shape[1]; ++j[1]) total += std::exp(in[1](j));
                                return std::exp(in[1](i)) / total;
                              }));
                },
            .roundings = 3});
  const esp::Tensor labels = esp::tensor({2, 0, 5, 5}, esp::int64);
  check_op({.name = "sparsemax_loss of labels",
            .op =
                [=](const Variables& x) {
                  return esp::sparsemax_loss(x[0], labels.to(x[0].device()), {.reduction = none});
                },
            .inputs = {numbers(shape)},
            .reference =
                [=](const std::vector<Array>& in) {
                  return loss(in, Array(shape, [&](const Index& i) {
                                return labels.at<int64_t>({i[0]}) == i[1] ? 1.0 : 0.0;
                              }));
                },
            .roundings = 3});
  // p − q, also of large scores; 0 where the label leads by 1.
  const esp::Tensor scores = esp::tensor({{1e6, 1e6 - 1, 3.0}, {0.25, 0.5, 0.25}}, esp::float64);
  const esp::Variable x = esp::variable(scores);
  const esp::Variable each = esp::sparsemax_loss(x, esp::tensor({0, 1}), {.reduction = none});
  BOOST_TEST(each.value().at<double>({0}) == 0);
  BOOST_TEST(
      difference(esp::sum(each).gradient(x).value(),
                 (esp::sparsemax(scores) - esp::one_hot(esp::tensor({0, 1}), 3, esp::float64)).value()) <
      1e-15);
  BOOST_TEST(esp::sparsemax_loss(x, esp::tensor({0, 1})).item() == esp::mean(each).item());
  const esp::Tensor scalar = esp::tensor(1.0);
  BOOST_CHECK_EXCEPTION(esp::sparsemax_loss(scalar, scalar), esp::ShapeError,
                        says({"sparsemax_loss", here()}));
  BOOST_CHECK_EXCEPTION(esp::sparsemax_loss(x, esp::tensor({0, 1, 2})), esp::ShapeError,
                        says({"sparsemax_loss", "[3]", "[2, 3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::sparsemax_loss(x, esp::tensor({0, 3})), esp::IndexError, says({"3", here()}));
}

BOOST_AUTO_TEST_CASE(other_axes) {
  const esp::Tensor x = numbers({3, 5, 2});
  const esp::Variable turned = esp::transpose(esp::sparsemax(esp::transpose(x, {0, 2, 1})), {0, 2, 1});
  BOOST_TEST(difference(esp::sparsemax(x, 1).value(), turned.value()) == 0);
  BOOST_TEST(difference(esp::sum(esp::sparsemax(x, 0), 0).value(), esp::ones({5, 2}, esp::float64)) < 1e-15);
}

BOOST_AUTO_TEST_CASE(nan_stays_in_its_row) {
  esp::Tensor x = numbers({2, 3}).to(esp::float32);
  x.at<float>({0, 1}) = NAN;
  const esp::Tensor y = esp::sparsemax(x).value();
  BOOST_TEST(std::isnan(y.at<float>({0, 1})));
  BOOST_TEST(!std::isnan(y.at<float>({1, 1})));
}

BOOST_AUTO_TEST_CASE(samples_of_classes) {
  esp::seed(7);
  const esp::Tensor p = esp::tensor({0.5, 0.3, 0.2}, esp::float64);
  const esp::Variable logits = esp::broadcast_to(esp::log(p), {20'000, 3});
  const esp::Tensor hard = esp::gumbel_softmax(logits, {.hard = true}).value();
  const esp::Tensor shares = esp::mean(hard, 0).value();
  for (int64_t k = 0; k < 3; ++k) BOOST_TEST(std::abs(shares.at<double>({k}) - p.at<double>({k})) < 0.015);
  BOOST_TEST(difference(esp::max(hard, -1).value(), esp::ones({20'000}, esp::float64)) < 1e-15);

  const esp::Variable x = esp::variable(numbers({5, 4}).clone());
  const esp::Variable soft = esp::gumbel_softmax(x, {.temperature = 0.5, .axis = 0});
  BOOST_TEST(difference(esp::sum(soft, 0).value(), esp::ones({4}, esp::float64)) < 1e-14);
  const esp::Variable weighted = esp::sum(soft * numbers({5, 4}, -1, 1, 1));
  const esp::Tensor g = weighted.gradient(x).value();
  BOOST_TEST(difference(esp::sum(g, 0).value(), esp::zeros({4}, esp::float64)) < 1e-14);
  BOOST_TEST(esp::sum(esp::abs(g)).item() > 0.01);
  const esp::Variable straight = esp::sum(esp::gumbel_softmax(x, {.hard = true}) * numbers({5, 4}, -1, 1, 1));
  BOOST_TEST(esp::sum(esp::abs(straight.gradient(x))).item() > 0.01);
  for (const esp::DType dtype : {esp::float16, esp::bfloat16, esp::float32}) {
    const esp::Tensor y = esp::gumbel_softmax(numbers({50, 40}).to(dtype)).value();
    BOOST_TEST((y.dtype() == dtype));
    BOOST_TEST(std::isfinite(esp::sum(esp::cast(y, esp::float64)).item()));
  }
}

// One of the uniform numbers of this seed is 0.
BOOST_AUTO_TEST_CASE(samples_of_one_class_are_certain) {
  const esp::Variable x = esp::zeros({1 << 16, 1});
  esp::seed(283);
  BOOST_TEST_REQUIRE(esp::min(esp::rand_like(x)).item() == 0);
  esp::seed(283);
  BOOST_TEST(esp::min(esp::gumbel_softmax(x)).item() == 1);
}

BOOST_AUTO_TEST_CASE(mistakes) {
  const esp::Variable x = esp::ones({2, 3}), whole = esp::tensor({1, 2}), scalar = esp::tensor(1.0);
  BOOST_CHECK_EXCEPTION(esp::sparsemax(whole), esp::TypeError, says({"sparsemax", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::sparsemax(scalar), esp::ShapeError, says({"sparsemax", here()}));
  BOOST_CHECK_THROW(esp::sparsemax(x, 2), esp::Error);
  BOOST_CHECK_EXCEPTION(esp::gumbel_softmax(whole), esp::TypeError,
                        says({"gumbel_softmax", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::gumbel_softmax(scalar), esp::ShapeError, says({"gumbel_softmax", here()}));
  BOOST_CHECK_EXCEPTION(esp::gumbel_softmax(x, {.temperature = 0}), esp::Error,
                        says({"gumbel_softmax", "temperature", "0", here()}));
}

BOOST_AUTO_TEST_CASE(a_masked_class_has_no_part_in_the_loss) {
  const esp::Tensor open = esp::tensor({{0.25, 0.5}}, esp::float64);
  const esp::Variable x = esp::variable(esp::tensor({{0.25, -HUGE_VAL, 0.5}}, esp::float64)),
                      y = esp::variable(open);
  const auto check = [&](const esp::Tensor& of_three, const esp::Tensor& of_two) {
    const esp::Variable loss = esp::sparsemax_loss(x, of_three), plain = esp::sparsemax_loss(y, of_two);
    BOOST_TEST(loss.item() == plain.item());
    const esp::Tensor slope = esp::sum(loss).gradient(x).value(), same = plain.gradient(y).value();
    BOOST_TEST(slope.at<double>({0, 1}) == 0);
    BOOST_TEST(slope.at<double>({0, 0}) == same.at<double>({0, 0}));
    BOOST_TEST(slope.at<double>({0, 2}) == same.at<double>({0, 1}));
  };
  check(esp::tensor({0}), esp::tensor({0}));
  check(esp::tensor({2}), esp::tensor({1}));
  check(esp::tensor({{0.25, 0.0, 0.75}}, esp::float64), esp::tensor({{0.25, 0.75}}, esp::float64));
  BOOST_TEST(esp::sparsemax_loss(x, esp::tensor({1})).item() == INFINITY);
}

BOOST_AUTO_TEST_SUITE_END()
