// Distinct elements and counts of numbers.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/counting.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

constexpr int64_t most = std::numeric_limits<int64_t>::max();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

}  // namespace

BOOST_AUTO_TEST_SUITE(counting)

BOOST_AUTO_TEST_CASE(unique) {
  const esp::Tensor x = esp::tensor({{3.0, -1.0, 3.0}, {0.5, -1.0, 3.0}}, esp::float64);
  for (const auto dtype : {esp::float64, esp::float32, esp::float16, esp::int64})
    for (const esp::Tensor& same : {x, laid_out_in_reverse(x), sliced_from_larger(x)}) {
      const esp::UniqueElements found = esp::unique(same.to(dtype), {.inverse = true, .counts = true});
      BOOST_TEST((found.values.dtype() == dtype));
      BOOST_TEST(difference(esp::tensor({-1.0, dtype == esp::int64 ? 0.0 : 0.5, 3.0}, esp::float64),
                            found.values.value()) == 0);
      BOOST_TEST(difference(esp::tensor({{2, 0, 2}, {1, 0, 2}}), found.inverse.value()) == 0);
      BOOST_TEST(difference(esp::tensor({2, 1, 3}), found.counts.value()) == 0);
      BOOST_TEST(difference(same.to(dtype), esp::gather(found.values, found.inverse).value()) == 0);
    }
  const esp::UniqueElements numbers_and_nans =
      esp::unique(esp::tensor({not_a_number, 0.0, not_a_number, -0.0}, esp::float64), {.counts = true});
  BOOST_TEST(difference(esp::tensor({0.0, not_a_number, not_a_number}, esp::float64),
                        numbers_and_nans.values.value()) == 0);
  BOOST_TEST(difference(esp::tensor({2, 1, 1}), numbers_and_nans.counts.value()) == 0);
  BOOST_TEST(!numbers_and_nans.inverse.defined());
  BOOST_TEST(esp::unique(esp::zeros({0})).values.shape() == esp::Shape({0}));
  BOOST_TEST(esp::unique(5).values.shape() == esp::Shape({1}));
  BOOST_TEST(difference(esp::tensor({false, true}),
                        esp::unique(esp::tensor({true, false, true})).values.value()) == 0);
}

BOOST_AUTO_TEST_CASE(unique_in_plans) {
  const esp::Variable fed = esp::placeholder("x", {4}, esp::int64);
  BOOST_CHECK_EXCEPTION(esp::unique(fed), esp::UnsupportedError, says({"unique", "sort()", here()}));
  const esp::Variable leaf = esp::state(esp::tensor({1.0f, 2.0f, 1.0f}));
  const esp::Variable total = esp::sum(esp::unique(leaf).values) + esp::sum(esp::placeholder("y", {2}));
  const esp::Executor executor = total.get_executor({.mode = esp::Mode::inference});
  const esp::Tensor y = esp::ones({2});
  BOOST_TEST(executor.run({{"y", y}}).item() == 5);
  esp::set_value(leaf, esp::tensor({4.0f, 2.0f, 4.0f}));
  BOOST_TEST(executor.run({{"y", y}}).item() == 8);
  esp::set_value(leaf, esp::tensor({4.0f, 2.0f, 1.0f}));
  BOOST_CHECK_EXCEPTION(executor.run({{"y", y}}), esp::UnsupportedError, says({"unique", "3", "2"}));
}

BOOST_AUTO_TEST_CASE(bincount) {
  const auto counted = [](const std::vector<Array>& in) {
    return Array({6}, [&](const Index& bin) {
      double count = 0;
      each_index(in[0].shape, [&](const Index& i) {
        if (in[0](i) == static_cast<double>(bin[0])) count += in.size() > 1 ? in[1](i) : 1;
      });
      return count;
    });
  };
  const esp::Tensor x = esp::tensor({{0, 2, 5}, {2, 2, 1}});
  check_op({.name = "bincount",
            .op = [](const Variables& v) { return esp::bincount(v[0], {.length = 6}); },
            .inputs = {x},
            .reference = counted,
            .order = 0});
}

BOOST_AUTO_TEST_CASE(numbers_of_bins) {
  const esp::Tensor x = esp::tensor({{0, 2, 5}, {2, 2, 1}});
  BOOST_TEST(difference(esp::tensor({1, 1, 3, 0, 0, 1}), esp::bincount(x).value()) == 0);
  BOOST_TEST(difference(esp::tensor({1, 1, 3, 0, 0, 1, 0, 0}), esp::bincount(x, {.min_length = 8}).value()) ==
             0);
  BOOST_TEST(esp::bincount(esp::zeros({0}, esp::int64)).shape() == esp::Shape({0}));
  BOOST_TEST(esp::bincount(esp::zeros({0}, esp::int32), {.min_length = 2}).shape() == esp::Shape({2}));
  BOOST_CHECK_EXCEPTION(esp::bincount(esp::tensor({1, -1})), esp::IndexError,
                        says({"bincount", "-1", here()}));
  BOOST_CHECK_EXCEPTION(esp::bincount(x, {.length = 5}), esp::IndexError, says({"bincount", "5", here()}));
  BOOST_CHECK_EXCEPTION(esp::bincount(esp::ones({2})), esp::TypeError, says({"bincount", "float32", here()}));
  BOOST_CHECK_EXCEPTION(esp::bincount(x, {.length = -2}), esp::Error, says({"bincount", "-2", here()}));
  BOOST_CHECK_EXCEPTION(esp::bincount(x, {.length = most}), esp::ShapeError,
                        says({"bincount", std::to_string(most), "64 bits", here()}));
  BOOST_CHECK_EXCEPTION(esp::bincount(x, {.min_length = most}), esp::ShapeError, says({"bincount", here()}));
  BOOST_CHECK_EXCEPTION(esp::bincount(esp::tensor({most})), esp::ShapeError,
                        says({"bincount", std::to_string(most), "64 bits", here()}));
  const esp::Variable few = esp::ones({3});
  BOOST_CHECK_EXCEPTION(esp::bincount(x, {.weights = few}), esp::ShapeError,
                        says({"bincount", "[3]", here()}));
  const esp::Variable fed = esp::placeholder("x", {4}, esp::int64);
  BOOST_CHECK_EXCEPTION(esp::bincount(fed), esp::UnsupportedError, says({"bincount", "length", here()}));
  const esp::Executor executor =
      esp::bincount(fed, {.length = 4}).get_executor({.mode = esp::Mode::inference});
  BOOST_TEST(difference(esp::tensor({0, 2, 0, 1}), executor.run({{"x", esp::tensor({3, 1, 1})}})) == 0);
  BOOST_CHECK_THROW(executor.run({{"x", esp::tensor({3, 1, 4})}}), esp::IndexError);
}

BOOST_AUTO_TEST_CASE(weights) {
  const esp::Tensor x = esp::tensor({{0, 2}, {3, 2}});
  check_op({.name = "bincount of weights",
            .op =
                [=](const Variables& v) {
                  return esp::bincount(x.to(v[0].device()), {.weights = v[0], .length = 4});
                },
            .inputs = {numbers({2, 2})},
            .reference =
                [](const std::vector<Array>& in) {
                  const double sums[] = {in[0]({0, 0}), 0, in[0]({0, 1}) + in[0]({1, 1}), in[0]({1, 0})};
                  return Array({4}, [&](const Index& i) { return sums[i[0]]; });
                },
            .roundings = 2});
  const esp::Variable w = esp::variable(esp::tensor({{1.0f, 2.0f}, {3.0f, 4.0f}}));
  const esp::Variable sums = esp::bincount(x, {.weights = w});
  BOOST_TEST(difference(esp::tensor({1.0f, 0.0f, 6.0f, 3.0f}), sums.value()) == 0);
  BOOST_TEST(difference(esp::ones({2, 2}), sums.gradient(w).value()) == 0);
  const esp::Variable ones = esp::ones({2}), low = esp::tensor({1, -1});
  BOOST_CHECK_THROW(esp::bincount(low, {.weights = ones, .length = 3}), esp::IndexError);
}

BOOST_AUTO_TEST_CASE(histogram) {
  const esp::Tensor x = esp::tensor({0.0, 0.24, 0.25, 1.0, 0.99, -0.1, 1.1, not_a_number}, esp::float64);
  for (const auto dtype : {esp::float64, esp::float32, esp::bfloat16})
    BOOST_TEST(difference(esp::tensor({2, 1, 0, 2}), esp::histogram(x.to(dtype), 4, 0, 1).value()) == 0);
  BOOST_TEST(difference(esp::tensor({0, 0}), esp::histogram(esp::zeros({0}), 2, 0, 1).value()) == 0);
  BOOST_CHECK_EXCEPTION(esp::histogram(x, 0, 0, 1), esp::Error, says({"histogram", here()}));
  BOOST_CHECK_EXCEPTION(esp::histogram(x, 2, 1, 1), esp::Error, says({"histogram", here()}));
  // Bounds that a float does not have, and a width that no double has.
  const esp::Tensor far = esp::tensor({-1e300, 0.0, 1.0, 9e307}, esp::float64);
  BOOST_TEST(difference(esp::tensor({3, 0}), esp::histogram(far, 2, -8e307, 8.5e307).value()) == 0);
  BOOST_TEST(difference(esp::tensor({0, 2, 0}),
                        esp::histogram(esp::tensor({0.5f, 3e38f}), 3, -1e300, 2e300).value()) == 0);
  BOOST_TEST(difference(esp::tensor({0, 2}),
                        esp::histogram(esp::tensor({0.5f, 3e38f}), 2, -1e300, 1e300).value()) == 0);
  constexpr double infinity = INFINITY;
  for (const auto& [low, high] :
       {std::pair(0.0, infinity), std::pair(-infinity, 0.0), std::pair(-1.5e308, 1.5e308)})
    BOOST_CHECK_EXCEPTION(esp::histogram(x, 2, low, high), esp::Error,
                          says({"histogram", "width", "infinite", here()}));
  BOOST_CHECK_EXCEPTION(esp::histogram(x, 2, NAN, 1), esp::Error, says({"histogram", "nan", here()}));
  for (const int64_t bins : {most / 8, most})
    BOOST_CHECK_EXCEPTION(esp::histogram(x, bins, 0, 1), esp::ShapeError,
                          says({"histogram", std::to_string(bins), "64 bits", here()}));
  BOOST_CHECK_EXCEPTION(esp::histogram(esp::tensor({1}), 2, 0, 1), esp::TypeError,
                        says({"histogram", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
