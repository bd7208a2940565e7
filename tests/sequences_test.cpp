// Tensors of evenly spaced numbers, and random integers.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/core/sequences.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;

namespace {

template <class T>
bool lists(const Tensor& x, const std::vector<T>& values) {
  return x.shape() == Shape{static_cast<int64_t>(values.size())} && std::ranges::equal(x.span<T>(), values);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sequences)

BOOST_AUTO_TEST_CASE(arange) {
  BOOST_TEST(lists<float>(esp::arange(2, 5), {2, 3, 4}));
  BOOST_TEST(lists<int64_t>(esp::arange(2, 9, 3, esp::int64), {2, 5, 8}));
  BOOST_TEST(lists<int64_t>(esp::arange(2, 8, 3, esp::int64), {2, 5}));
  BOOST_TEST(lists<int32_t>(esp::arange(3, 0, -1, esp::int32), {3, 2, 1}));
  BOOST_TEST(lists<double>(esp::arange(0, 1, 0.25, esp::float64), {0, 0.25, 0.5, 0.75}));
  BOOST_TEST(lists<float>(esp::arange(1.5, 3.0), {1.5f, 2.5f}));
  BOOST_TEST(lists<int64_t>(esp::arange(5, 2, esp::int64), {}));
  BOOST_TEST(lists<int64_t>(esp::arange(2, 5, -1, esp::int64), {}));
  BOOST_TEST(
      lists<int64_t>(esp::arange(INT64_MAX - 2, INT64_MAX, 1, esp::int64), {INT64_MAX - 2, INT64_MAX - 1}));
  BOOST_TEST(lists<int64_t>(esp::arange(INT64_MIN, INT64_MAX, INT64_MAX, esp::int64),
                            {INT64_MIN, -1, INT64_MAX - 1}));
  BOOST_TEST(lists<float>(esp::arange(3), {0, 1, 2}));  // the function of one number is another
  BOOST_CHECK_EXCEPTION(esp::arange(0, 3, 0), esp::Error, says({"arange", "step", here()}));
  BOOST_CHECK_EXCEPTION(esp::arange(0.0, std::nan("")), esp::Error, says({"arange", "nan", here()}));
  BOOST_CHECK_EXCEPTION(esp::arange(0, 1, 0.5, esp::int64), esp::TypeError, says({"0.5", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::arange(INT64_MIN, INT64_MAX), esp::OutOfMemory, says({"arange", here()}));
}

BOOST_AUTO_TEST_CASE(linspace_and_logspace) {
  BOOST_TEST(lists<float>(esp::linspace(0, 1, 5), {0, 0.25f, 0.5f, 0.75f, 1}));
  BOOST_TEST(lists<double>(esp::linspace(1, -1, 3, esp::float64), {1, 0, -1}));
  BOOST_TEST(lists<float>(esp::linspace(7, 9, 1), {7}));
  BOOST_TEST(lists<float>(esp::linspace(7, 9, 0), {}));
  const Tensor many = esp::linspace(0.1, 0.7, 1000, esp::float64);
  BOOST_TEST(many.at<double>({0}) == 0.1);
  BOOST_TEST(many.at<double>({999}) == 0.7);
  BOOST_TEST(lists<float>(esp::logspace(0, 3, 4), {1, 10, 100, 1000}));
  BOOST_TEST(lists<double>(esp::logspace(-1, 1, 3, 2, esp::float64), {0.5, 1, 2}));
  BOOST_CHECK_EXCEPTION(esp::linspace(0, 1, -1), esp::ShapeError, says({"linspace", "-1", here()}));
  BOOST_CHECK_EXCEPTION(esp::linspace(0, 1, 3, esp::int64), esp::TypeError,
                        says({"linspace", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::logspace(0, 1, -1), esp::ShapeError, says({"logspace", here()}));
}

BOOST_AUTO_TEST_CASE(eye) {
  const Tensor x = esp::eye(2, 3, esp::int64);
  BOOST_TEST(x.shape() == Shape({2, 3}));
  BOOST_TEST(std::ranges::equal(x.span<int64_t>(), std::vector<int64_t>{1, 0, 0, 0, 1, 0}));
  BOOST_TEST(std::ranges::equal(esp::eye(3, 1).span<float>(), std::vector<float>{1, 0, 0}));
  BOOST_TEST(esp::eye(0, 3).shape() == Shape({0, 3}));
  BOOST_CHECK_EXCEPTION(esp::eye(2, -3), esp::ShapeError, says({"-3", here()}));
}

BOOST_AUTO_TEST_CASE(randint) {
  esp::seed(4);
  const Tensor x = esp::randint(-3, 4, {7000});
  BOOST_TEST(x.dtype() == esp::int64);
  std::vector<int> counts(7);
  for (const int64_t value : x.span<int64_t>()) {
    BOOST_REQUIRE((value >= -3 && value < 4));
    ++counts[static_cast<size_t>(value + 3)];
  }
  for (const int count : counts) BOOST_TEST(std::abs(count - 1000) < 150);
  esp::seed(4);
  BOOST_TEST(difference(x.to(esp::int32), esp::randint(-3, 4, {7000}, esp::int32)) == 0);
  BOOST_TEST(difference(x, esp::randint(-3, 4, {7000})) > 0);
  const esp::Tensor wide = esp::randint(INT64_MIN, INT64_MAX, {100});
  for (const int64_t value : wide.span<int64_t>()) BOOST_TEST(value != 0);
  const auto drawn = [](esp::DType dtype) {
    esp::seed(6);
    return esp::randint(-128, 128, {2000}, dtype).to(esp::int64);
  };
  BOOST_TEST(difference(drawn(esp::int8), drawn(esp::int32)) == 0);
  BOOST_CHECK_EXCEPTION(esp::randint(3, 3, {2}), esp::Error, says({"randint", "3", here()}));
  BOOST_CHECK_EXCEPTION(esp::randint(0, 3, {2}, esp::float32), esp::TypeError, says({"randint", here()}));
  BOOST_CHECK_EXCEPTION(esp::randint(0, int64_t{1} << 40, {2}, esp::int32), esp::TypeError,
                        says({"randint", "int32", here()}));
}

BOOST_AUTO_TEST_CASE(many_random_integers_repeat_none_of_their_numbers) {
  esp::seed(5);
  const Tensor x = esp::randint(0, int64_t{1} << 60, {5000});
  const std::set<int64_t> numbers(x.span<int64_t>().begin(), x.span<int64_t>().end());
  BOOST_TEST(numbers.size() == 5000u);  // two of them are equal once in 10^11 seeds
}

BOOST_AUTO_TEST_CASE(randperm) {
  esp::seed(4);
  const Tensor x = esp::randperm(100);
  std::vector<int64_t> sorted(x.span<int64_t>().begin(), x.span<int64_t>().end());
  std::ranges::sort(sorted);
  for (int64_t i = 0; i < 100; ++i) BOOST_TEST(sorted[static_cast<size_t>(i)] == i);
  BOOST_TEST(difference(x, esp::randperm(100)) > 0);
  esp::seed(4);
  BOOST_TEST(difference(x.to(esp::float32), esp::randperm(100, esp::float32)) == 0);
  BOOST_TEST(esp::randperm(0).shape() == Shape({0}));
  BOOST_CHECK_EXCEPTION(esp::randperm(-1), esp::ShapeError, says({"randperm", "-1", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
