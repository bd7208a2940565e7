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

BOOST_AUTO_TEST_SUITE_END()
