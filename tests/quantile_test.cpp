// Quantiles, against sorted rows.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/sorting.h"
#include "espalier/ops/ops.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity(),
                 not_a_number = std::numeric_limits<double>::quiet_NaN();

using Interpolation = esp::QuantileInterpolation;

double quantile_of(std::vector<double> row, double q, bool skips_nan, Interpolation interpolation) {
  const size_t all = row.size();
  std::erase_if(row, [](double x) { return std::isnan(x); });
  if (row.empty() || (!skips_nan && row.size() < all)) return not_a_number;
  std::ranges::sort(row);
  const double position = q * static_cast<double>(row.size() - 1), below = std::floor(position);
  const double a = row[static_cast<size_t>(below)], b = row[static_cast<size_t>(std::ceil(position))];
  switch (interpolation) {
    case Interpolation::lower: return a;
    case Interpolation::higher: return b;
    case Interpolation::midpoint: return (a + b) / 2;
    case Interpolation::nearest: return row[static_cast<size_t>(std::nearbyint(position))];
    case Interpolation::linear: break;
  }
  return a + (b - a) * (position - below);
}

Reference quantiles(double q, size_t axis, bool keep, bool skips_nan,
                    Interpolation interpolation = Interpolation::linear) {
  return [=](const std::vector<Array>& in) {
    esp::Shape shape = in[0].shape;
    const int64_t count = shape.dims()[axis];
    keep ? void(shape.dims()[axis] = 1) : void(shape.dims().erase(axis));
    return Array(shape, [&](const Index& to) {
      Index from = to;
      if (!keep) from.insert(from.begin() + static_cast<std::ptrdiff_t>(axis), 0);
      std::vector<double> row;
      for (from[axis] = 0; from[axis] < count; ++from[axis]) row.push_back(in[0](from));
      return quantile_of(row, q, skips_nan, interpolation);
    });
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(quantile)

BOOST_AUTO_TEST_CASE(along_an_axis) {
  const esp::Tensor x = numbers({3, 4, 5});
  for (const double q : {0.0, 0.3, 0.5, 0.85, 1.0})
    for (const size_t axis : {0, 1, 2})
      for (const bool keep : {false, true}) {
        const auto at = static_cast<int64_t>(axis);
        check_op({.name = "quantile",
                  .op = [=](const Variables& v) { return esp::quantile(v[0], q, at, keep); },
                  .inputs = {x},
                  .reference = quantiles(q, axis, keep, false),
                  .roundings = 3});
        check_op({.name = "nanquantile",
                  .op = [=](const Variables& v) { return esp::nanquantile(v[0], q, at, keep); },
                  .inputs = {x},
                  .reference = quantiles(q, axis, keep, true),
                  .roundings = 3});
      }
}

BOOST_AUTO_TEST_CASE(between_two_elements) {
  using enum Interpolation;
  const esp::Tensor x = numbers({4, 6});
  for (const Interpolation interpolation : {lower, higher, midpoint, nearest})
    for (const double q : {0.0, 0.3, 0.5, 0.7, 1.0})  // 0.3 and 0.7 of 6 elements are halfway
      for (const bool skips_nan : {false, true})
        check_op({.name = skips_nan ? "nanquantile" : "quantile",
                  .op =
                      [=](const Variables& v) {
                        return skips_nan ? esp::nanquantile(v[0], q, 1, false, interpolation)
                                         : esp::quantile(v[0], q, 1, false, interpolation);
                      },
                  .inputs = {x},
                  .reference = quantiles(q, 1, false, skips_nan, interpolation),
                  .roundings = 3});
  const esp::Variable row = esp::tensor({8.0, 1.0, 4.0, 2.0}, esp::float64);
  BOOST_TEST(esp::quantile(row, 0.5, lower).item() == 2);
  BOOST_TEST(esp::quantile(row, 0.5, nearest).item() == 4);  // at 1.5: the even position
  BOOST_TEST(esp::nanquantile(row, 0.5, higher).item() == 4);
  BOOST_TEST(difference(esp::quantile(row, {0.1, 0.9}, 0, false, midpoint).value(),
                        esp::tensor({1.5, 6.0}, esp::float64)) == 0);
}

BOOST_AUTO_TEST_CASE(of_several_shares_and_of_all_elements) {
  const esp::Tensor x = numbers({3, 4, 5});
  const esp::Tensor both = esp::quantile(x, {0.2, 0.9}, 1).value(),
                    kept = esp::quantile(x, {0.2, 0.9}, -1, true).value();
  BOOST_TEST(both.shape() == esp::Shape({2, 3, 5}));
  BOOST_TEST(difference(both.slice(0, 1, 2), esp::unsqueeze(esp::quantile(x, 0.9, 1), 0).value()) == 0);
  BOOST_TEST(kept.shape() == esp::Shape({2, 3, 4, 1}));
  BOOST_TEST(esp::quantile(x, 0.37).item() == esp::quantile(esp::reshape(x, {60}), 0.37, 0).item());
  BOOST_TEST(esp::nanquantile(x, 0.37).item() == esp::quantile(x, 0.37).item());
  BOOST_TEST(esp::quantile(esp::tensor({1.0, 2.0, 4.0, 8.0}, esp::float64), 0.5).item() == 3.0);
  BOOST_TEST(esp::quantile(5.0, 0.5).item() == 5);
}

BOOST_AUTO_TEST_CASE(nans_and_infinities) {
  const esp::Tensor x = esp::tensor({{1.0, not_a_number, 3.0, 2.0},
                                     {4.0, 1.0, 2.0, 3.0},
                                     {not_a_number, not_a_number, not_a_number, not_a_number},
                                     {-inf, 0.0, 1.0, inf}},
                                    esp::float64);
  const esp::Tensor y = esp::quantile(x, 0.5, 1).value(), numbers_alone = esp::nanquantile(x, 0.5, 1).value();
  BOOST_TEST(std::isnan(y.at<double>({0})));
  BOOST_TEST(y.at<double>({1}) == 2.5);
  BOOST_TEST(std::isnan(y.at<double>({2})));
  BOOST_TEST(y.at<double>({3}) == 0.5);
  BOOST_TEST(numbers_alone.at<double>({0}) == 2);
  BOOST_TEST(numbers_alone.at<double>({1}) == 2.5);
  BOOST_TEST(std::isnan(numbers_alone.at<double>({2})));
}

/// The elements of gradients: the share of each of the two neighbours.
BOOST_AUTO_TEST_CASE(the_gradient_is_shared) {
  const esp::Variable x = esp::variable(esp::tensor({3.0, 1.0, 2.0, 10.0}, esp::float64));
  const esp::Tensor g = esp::quantile(x, 0.75, 0).gradient(x).value();  // at 2.25 of 1, 2, 3, 10
  BOOST_TEST(difference(g, esp::tensor({0.75, 0.0, 0.0, 0.25}, esp::float64)) < 1e-15);
}

BOOST_AUTO_TEST_CASE(batches_of_any_size) {
  const esp::Variable x = esp::placeholder("x", {-1, -1}, esp::float64);
  const esp::Variable rows = esp::quantile(x, 0.3, 1), columns = esp::nanquantile(x, 0.7, 0);
  const auto executor = rows.get_executor({.outputs = {{"columns", columns}}});
  for (const esp::Shape& shape : {esp::Shape({4, 5}), esp::Shape({1, 7}), esp::Shape({6, 1})}) {
    const esp::Tensor in = numbers(shape);
    BOOST_TEST(difference(executor.run({{"x", in}}), esp::quantile(in, 0.3, 1).value()) < 1e-15);
    const auto second = columns.get_executor().run({{"x", in}});
    BOOST_TEST(difference(second, esp::nanquantile(in, 0.7, 0).value()) < 1e-15);
  }
}

BOOST_AUTO_TEST_CASE(errors_name_the_call) {
  const esp::Tensor x = numbers({2, 3});
  BOOST_CHECK_EXCEPTION(esp::quantile(x, 1.5, 0), esp::Error, says({"quantile", "1.5", here()}));
  BOOST_CHECK_EXCEPTION(esp::nanquantile(x, not_a_number, 0), esp::Error,
                        says({"nanquantile", "nan", here()}));
  BOOST_CHECK_EXCEPTION(esp::quantile(x, 0.5, 2), esp::ShapeError, says({"quantile", here()}));
  BOOST_CHECK_EXCEPTION(esp::quantile(esp::ones({2, 0}), 0.5, 1), esp::ShapeError,
                        says({"quantile", "[2, 0]", here()}));
  BOOST_CHECK_EXCEPTION(esp::quantile(esp::tensor({1, 2}), 0.5), esp::TypeError, says({"quantile", here()}));
  BOOST_CHECK_EXCEPTION(esp::quantile(x, std::vector<double>(), 0), esp::Error, says({"quantile", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
