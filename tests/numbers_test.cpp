// C++ numbers in expressions: what they become, and which are refused.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

BOOST_AUTO_TEST_SUITE(numbers)

BOOST_AUTO_TEST_CASE(sums_may_begin_with_a_number) {
  esp::Variable total = 0;
  total += esp::variable({1.5f, 2.5f});
  BOOST_TEST((total.dtype() == esp::float32));
  BOOST_TEST(esp::sum(total).item() == 4);
  // The number itself counts, not what float32 makes of it.
  const esp::Variable tenth = 0.1;
  BOOST_TEST((esp::tensor({0.0}, esp::float64) + tenth).value().at<double>({0}) == 0.1);
  BOOST_TEST((esp::tensor({0.0}, esp::float64) - tenth).value().at<double>({0}) == -0.1);
  const esp::Variable large = INT64_MAX;
  BOOST_TEST((large - esp::tensor({1.0}, esp::float64)).value().at<double>({0}) == 0x1p63);
  // The other operand keeps its type, also if both are Variables of numbers.
  BOOST_CHECK_EXCEPTION(esp::tensor({1, 2}) + tenth, esp::TypeError, says({"0.1", "int64", here()}));
  // Other constants are data, whose type the user has chosen.
  BOOST_CHECK_THROW(esp::Variable(esp::tensor({0})) + esp::variable({1.5f}), esp::TypeError);
}

BOOST_AUTO_TEST_CASE(numbers_that_do_not_fit_are_refused) {
  const esp::Variable x = esp::zeros({1}), half = esp::zeros({1}, esp::float16);
  BOOST_CHECK_EXCEPTION(x * 1e40, esp::TypeError, says({"1e+40", "float32", here()}));
  BOOST_CHECK_EXCEPTION(half + 1e5, esp::TypeError, says({"100000", "float16", here()}));
  BOOST_CHECK_EXCEPTION(esp::zeros({1}, esp::int32) + 3e9, esp::TypeError,
                        says({"3000000000", "int32", here()}));
  BOOST_CHECK_EXCEPTION(esp::full({2}, -1e39), esp::TypeError, says({"-1e+39", "float32", here()}));
  BOOST_CHECK_THROW(esp::tensor({1.0, 1e40}), esp::TypeError);
  // What is infinite stays so, and the largest numbers fit.
  BOOST_TEST(std::isinf((x + INFINITY).item()));
  BOOST_TEST((half + 65504).item() == 65504);
  BOOST_TEST((x + 3.4e38).item() == 3.4e38f);
}

BOOST_AUTO_TEST_CASE(unsigned_numbers_keep_their_sign) {
  BOOST_TEST((esp::zeros({1}, esp::float64) + UINT64_MAX).item() == 0x1p64);
  BOOST_CHECK_EXCEPTION(esp::zeros({1}, esp::int64) + UINT64_MAX, esp::TypeError, says({"int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::Variable(UINT64_MAX), esp::TypeError, says({"int64", here()}));
  BOOST_CHECK_THROW(esp::tensor({UINT64_MAX}), esp::TypeError);
  BOOST_TEST(esp::tensor({uint64_t{INT64_MAX}}).at<int64_t>({0}) == INT64_MAX);
}

BOOST_AUTO_TEST_CASE(numbers_reach_tensors_whole) {
  constexpr int64_t odd = (int64_t{1} << 53) + 1;
  for (const int64_t number : {odd, -odd, INT64_MAX, INT64_MIN}) {
    BOOST_TEST(esp::full({2}, number, esp::int64).at<int64_t>({1}) == number);
    BOOST_TEST(esp::tensor({{number}}).at<int64_t>({0, 0}) == number);
  }
  BOOST_TEST(esp::full({1}, UINT64_MAX, esp::float64).item() == 0x1p64);
  BOOST_CHECK_EXCEPTION(esp::full({1}, UINT64_MAX, esp::int64), esp::TypeError, says({"int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::full({1}, 1.5, esp::int64), esp::TypeError, says({"1.5", "int64", here()}));
  BOOST_TEST(esp::full({1}, true, esp::boolean).at<bool>({0}));
  BOOST_TEST(esp::full({1}, esp::Float16(2.5f)).item() == 2.5);
  const esp::Tensor pair = esp::tensor({{true, false}});
  BOOST_TEST((pair.dtype() == esp::boolean));
  BOOST_CHECK_EXCEPTION(esp::tensor({{1.5, 2.0}}, esp::int64), esp::TypeError, says({"1.5", here()}));
}

BOOST_AUTO_TEST_CASE(long_doubles_do_not_become_infinite) {
  const long double large = 1e400L;
  if (!std::isfinite(large) || std::isfinite(static_cast<double>(large)))
    return;  // long double is double here
  const esp::Variable x = esp::zeros({1}, esp::float64);
  BOOST_CHECK_EXCEPTION(x + large, esp::TypeError, says({"double", here()}));
  BOOST_CHECK_EXCEPTION(esp::Variable{large}, esp::TypeError, says({"double", here()}));
  BOOST_CHECK_EXCEPTION(esp::full({1}, large, esp::float64), esp::TypeError, says({"double", here()}));
  BOOST_CHECK_EXCEPTION(esp::tensor({1.0L, -large}), esp::TypeError, says({"-1e+400", "double", here()}));
  BOOST_TEST(std::isinf((x + std::numeric_limits<long double>::infinity()).item()));
}

BOOST_AUTO_TEST_CASE(zeros_of_both_signs_are_the_same_in_plans) {
  const esp::Tensor negative = esp::full({3}, -0.0);
  for (const auto& f : {+[](const esp::Variable& x) { return 1.0 / (x + 0.0); },
                        +[](const esp::Variable& x) { return 1.0 / (0.0 + x); },
                        +[](const esp::Variable& x) { return 1.0 / (x - 0.0); },
                        +[](const esp::Variable& x) { return 1.0 / (x + -0.0); },
                        +[](const esp::Variable& x) { return 1.0 / (x - -0.0); }}) {
    const float eager = f(negative).value().at<float>({0});
    const esp::Executor executor = f(esp::placeholder("x", {3})).get_executor({.mode = esp::Mode::inference});
    BOOST_TEST(executor.run({{"x", negative}}).at<float>({0}) == eager);
  }
}

BOOST_AUTO_TEST_SUITE_END()
