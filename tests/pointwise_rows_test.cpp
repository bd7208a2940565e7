// Rows of pointwise kernels: all lengths around those of blocks, and all patterns of steps.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <vector>

#include "espalier/core/scalar_activations.h"
#include "espalier/core/scalar_functions.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "testing.h"

namespace esp = espalier;
namespace scalar = espalier::scalar;
using namespace espalier::testing;
using esp::Tensor;
using esp::Variable;

namespace {

constexpr int64_t row_lengths[] = {0, 1, 3, 4, 15, 16, 17, 255, 256, 257, 700};

template <class T>
std::vector<T> row_numbers(int64_t n, double phase) {
  std::vector<T> x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    x[static_cast<size_t>(i)] = static_cast<T>(2 + std::sin(phase + 0.7 * double(i)));
  return x;
}

/// Where an operand begins whose elements are `step` apart.
template <class T>
const T* first_of(const std::vector<T>& x, int64_t n, int64_t step) {
  return x.data() + (step < 0 ? -step * std::max<int64_t>(n - 1, 0) : 0);
}

template <class T>
bool near(T a, T b) {
  return std::abs(a - b) <= 1e-5 * std::max(T(1), std::abs(b));
}

template <class F, class T>
void check_unary_rows() {
  for (const int64_t n : row_lengths)
    for (const int64_t step : {1, 0, 2, -1}) {
      const std::vector<T> x = row_numbers<T>(2 * n + 1, 0.3);
      std::vector<T> out(static_cast<size_t>(n) + 1, T(-7));
      const T* from = first_of(x, n, step);
      esp::detail::unary_row<F, T, T>(n, out.data(), from, step);
      for (int64_t i = 0; i < n; ++i)
        BOOST_REQUIRE_MESSAGE(near(out[size_t(i)], F()(from[i * step])), n << " " << step << " " << i);
      BOOST_REQUIRE(out.back() == T(-7));
    }
}

template <class F, class T>
void check_binary_rows() {
  for (const int64_t n : row_lengths)
    for (const int64_t sa : {1, 0, 2, -1})
      for (const int64_t sb : {1, 0, 3}) {
        const std::vector<T> x = row_numbers<T>(2 * n + 1, 0.3), y = row_numbers<T>(3 * n + 1, 1.9);
        std::vector<T> out(static_cast<size_t>(n) + 1, T(-7));
        const T *a = first_of(x, n, sa), *b = first_of(y, n, sb);
        esp::detail::binary_row<F, T, T>(n, out.data(), a, sa, b, sb);
        for (int64_t i = 0; i < n; ++i)
          BOOST_REQUIRE_MESSAGE(near(out[size_t(i)], F()(a[i * sa], b[i * sb])),
                                n << " " << sa << " " << sb << " " << i);
        BOOST_REQUIRE(out.back() == T(-7));
      }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(pointwise_rows)

BOOST_AUTO_TEST_CASE(rows_of_all_lengths_and_steps) {
  check_unary_rows<scalar::Silu, float>();
  check_unary_rows<scalar::Log, double>();
  check_unary_rows<scalar::Sqrt, float>();
  check_unary_rows<scalar::Negative, int32_t>();
  check_binary_rows<scalar::LogAddExp, float>();
  check_binary_rows<scalar::Power, double>();
  check_binary_rows<scalar::Divide, float>();
  check_binary_rows<scalar::Maximum, int64_t>();
}

BOOST_AUTO_TEST_CASE(rows_in_place) {
  for (const int64_t n : row_lengths) {
    std::vector<float> x = row_numbers<float>(n, 0.1);
    const std::vector<float> before = x;
    esp::detail::binary_row<scalar::LogAddExp, float, float>(n, x.data(), x.data(), 1, x.data(), 1);
    for (size_t i = 0; i < x.size(); ++i) BOOST_REQUIRE(near(x[i], before[i] + 0.69314718f));
  }
}

// Rows too short to be computed one by one are joined: points minus their centre, matrices times 2 × 2
// blocks.
BOOST_AUTO_TEST_CASE(short_rows_of_broadcast_operands) {
  const std::pair<esp::Shape, esp::Shape> shapes[] = {
      {{1000, 3}, {3}},     {{1000, 3}, {1000, 1}},    {{5, 64, 2}, {5, 1, 2}}, {{16, 1, 64, 1}, {2, 1, 2}},
      {{400, 7}, {1, 7}},   {{7, 9, 5, 2}, {9, 1, 2}}, {{2, 700, 2}, {700, 1}}, {{3, 2, 2}, {3, 1, 2}},
      {{20000, 2}, {1, 2}}, {{1, 600, 3}, {4, 1, 3}},
  };
  for (const auto& [of_a, of_b] : shapes) {
    const esp::Shape out = both(of_a, of_b);
    for (const esp::DType dtype : {esp::float32, esp::float64, esp::int64, esp::int32}) {
      const Tensor a = numbers(of_a, -9, 9, 1).to(dtype), b = numbers(of_b, 1, 9, 2).to(dtype);
      const Tensor y = (Variable(a) - Variable(b)).value(),
                   z = esp::where(Variable(a) > Variable(b), a, b).value();
      const Array left(a), right(b), apart(y), larger(z);
      size_t wrong = 0;
      each_index(out, [&](const Index& i) {
        const double expected =
            dtype == esp::float32
                ? static_cast<double>(static_cast<float>(left(i)) - static_cast<float>(right(i)))
                : left(i) - right(i);
        wrong += apart(i) != expected;
        wrong += larger(i) != std::max(left(i), right(i));
      });
      BOOST_TEST(wrong == 0u, of_a.str() << " and " << of_b.str() << " of " << esp::name(dtype));
    }
  }
}

// What is done in blocks, over several and a part of one.
BOOST_AUTO_TEST_CASE(elements_in_blocks) {
  const int64_t n = 20'001;
  std::vector<Variable> parts;
  for (int64_t k = 0; k < 3; ++k) parts.emplace_back(Tensor(esp::arange(n, esp::int32)) + k * n);
  const Tensor stacked = esp::stack(parts, -1).value();
  size_t wrong = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < 3; ++k) wrong += stacked.at<int32_t>({i, k}) != i + k * n;
  const Variable third = esp::equal(esp::remainder(parts[0], 3), 0);
  const Tensor places = esp::nonzero(third).value(), chosen = esp::masked_select(parts[0], third).value();
  BOOST_TEST_REQUIRE(places.elements() == 6'667);
  for (int64_t i = 0; i < places.elements(); ++i)
    wrong += places.at<int64_t>({i, 0}) != 3 * i || chosen.at<int32_t>({i}) != 3 * i;
  const Tensor counts = esp::bincount(esp::remainder(parts[0], 7)).value();
  for (int64_t k = 0; k < 7; ++k) wrong += counts.at<int64_t>({k}) != (n - k + 6) / 7;
  BOOST_TEST(wrong == 0u);
  BOOST_CHECK_THROW((void)esp::bincount(parts[0], {.length = n - 1}).value(), esp::IndexError);
}

BOOST_AUTO_TEST_CASE(softmax_of_many_rows_is_that_of_each) {
  for (const int64_t rows : {8, 63, 64, 65, 130})
    for (const int64_t n : {32, 50, 512}) {
      const Tensor x = numbers({rows, n}, -5, 5).to(esp::float32);
      const Tensor all = esp::softmax(x).value(), logs = esp::log_softmax(x).value();
      for (const int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
        const Tensor one = x.slice(0, row, row + 1);
        BOOST_TEST(difference(esp::softmax(one).value(), all.slice(0, row, row + 1)) < 1e-7);
        BOOST_TEST(difference(esp::log_softmax(one).value(), logs.slice(0, row, row + 1)) < 1e-6);
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()
