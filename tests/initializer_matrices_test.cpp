// Initializers of matrices, and the truncated normal distribution.
#include "espalier/nn/init_matrices.h"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
namespace init = espalier::nn::init;
using namespace espalier::testing;

namespace {

/// The largest difference of wᵀw, or wwᵀ if w is wide, from gain² times the identity.
double from_orthogonal(const esp::Tensor& w, double gain) {
  const esp::NoGrad none;
  const int64_t rows = w.shape()[0];
  const esp::Variable matrix = esp::reshape(esp::Variable(w.to(esp::float64)), {rows, w.elements() / rows});
  const bool wide = matrix.shape()[1] >= rows;
  const esp::Variable product =
      wide ? esp::matmul(matrix, esp::transpose(matrix)) : esp::matmul(esp::transpose(matrix), matrix);
  return difference(product.value(),
                    (esp::Variable(esp::eye(product.shape()[0], esp::float64)) * (gain * gain)).value());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(initializer_matrices)

BOOST_AUTO_TEST_CASE(orthogonal_matrices) {
  esp::seed(1);
  for (const esp::Shape& shape : {esp::Shape({5, 5}), esp::Shape({70, 40}), esp::Shape({33, 150}),
                                  esp::Shape({1, 4}), esp::Shape({4, 1}), esp::Shape({6, 3, 2, 2})}) {
    BOOST_TEST(from_orthogonal(init::Orthogonal(2)(shape, esp::float64), 2) < 1e-14);
    BOOST_TEST(from_orthogonal(init::Orthogonal()(shape, esp::float32), 1) < 1e-6);
  }
  BOOST_TEST(difference(init::Orthogonal()({5, 5}), init::Orthogonal()({5, 5})) > 0.1);
  BOOST_TEST(init::Orthogonal()({0, 4}).elements() == 0);
  BOOST_CHECK_EXCEPTION(init::Orthogonal()({5}), esp::ShapeError, says({"Orthogonal", "2 or more", "[5]"}));
  BOOST_CHECK_EXCEPTION(init::Orthogonal{NAN}, esp::Error, says({"Orthogonal: gain"}));
}

// Evenly distributed matrices have elements of mean 0 and of variance 1/n, on the diagonal too.
BOOST_AUTO_TEST_CASE(orthogonal_matrices_are_evenly_distributed) {
  esp::seed(2);
  double sum = 0, squares = 0, diagonal = 0;
  constexpr int count = 2000, n = 4;
  for (int i = 0; i < count; ++i) {
    const std::vector<double> q = Array(init::Orthogonal()({n, n}, esp::float64)).values;
    for (const double element : q) sum += element, squares += element * element;
    for (size_t k = 0; k < n; ++k) diagonal += q[k * (n + 1)];
  }
  BOOST_TEST(std::abs(sum / (count * n * n)) < 0.01);
  BOOST_TEST(std::abs(diagonal / (count * n)) < 0.03);
  BOOST_TEST(std::abs(squares / (count * n * n) - 1.0 / n) < 1e-12);
}

BOOST_AUTO_TEST_CASE(delta_orthogonal_kernels) {
  esp::seed(3);
  const esp::Tensor w = init::DeltaOrthogonal(1.5)({6, 4, 3, 5}, esp::float64);
  const esp::Tensor middle = w.slice(2, 1, 2).slice(3, 2, 3).contiguous_copy();
  BOOST_TEST(from_orthogonal(middle, 1.5) < 1e-14);
  double all = 0, inside = 0;
  for (const double element : Array(w).values) all += element * element;
  for (const double element : Array(middle).values) inside += element * element;
  BOOST_TEST(all == inside);
  BOOST_CHECK_EXCEPTION(init::DeltaOrthogonal()({3, 4, 3}), esp::ShapeError,
                        says({"as many outputs", "[3, 4, 3]"}));
  BOOST_CHECK_EXCEPTION(init::DeltaOrthogonal()({3, 4}), esp::ShapeError, says({"3 or more", "[3, 4]"}));
}

BOOST_AUTO_TEST_CASE(identities) {
  BOOST_TEST(difference(init::Eye()({2, 3}), esp::tensor({{1.0f, 0.0f, 0.0f}, {0.0f, 1.0f, 0.0f}})) == 0);
  BOOST_TEST(difference(init::Eye()({2, 2}, esp::bfloat16).to(esp::float32), esp::eye(2)) == 0);
  BOOST_CHECK_EXCEPTION(init::Eye()({2, 2, 2}), esp::ShapeError, says({"Eye", "2 axes", "[2, 2, 2]"}));
  // A convolution of such a kernel is the identity; in groups, of each group.
  const esp::Tensor plain = init::Dirac()({3, 2, 3}), grouped = init::Dirac(2)({4, 2, 3, 3});
  each_index({3, 2, 3},
             [&](const Index& i) { BOOST_TEST(Array(plain)(i) == (i[0] == i[1] && i[2] == 1 ? 1 : 0)); });
  each_index({4, 2, 3, 3}, [&](const Index& i) {
    BOOST_TEST(Array(grouped)(i) == (i[0] % 2 == i[1] && i[2] == 1 && i[3] == 1 ? 1 : 0));
  });
  BOOST_CHECK_EXCEPTION(init::Dirac(2)({3, 2, 3}), esp::ShapeError, says({"Dirac", "2 groups", "[3, 2, 3]"}));
  BOOST_CHECK_EXCEPTION(init::Dirac()({3, 2}), esp::ShapeError, says({"Dirac", "3 to 5", "[3, 2]"}));
  BOOST_CHECK_EXCEPTION(init::Dirac{0}, esp::Error, says({"Dirac", "0 groups"}));
}

BOOST_AUTO_TEST_CASE(sparse_matrices) {
  esp::seed(4);
  const Array w(init::Sparse(0.3, 2)({50, 40}, esp::float64));
  double squares = 0;
  std::set<int64_t> first_rows;
  for (int64_t column = 0; column < 40; ++column) {
    int zeros = 0;
    for (int64_t row = 0; row < 50; ++row) {
      const double element = w({row, column});
      if (element == 0 && ++zeros == 1) first_rows.insert(row);
      squares += element * element;
    }
    BOOST_TEST(zeros == 15);
  }
  BOOST_TEST(first_rows.size() > 3u);
  BOOST_TEST(std::abs(squares / (35 * 40) - 4) < 0.4);
  // Of 10 rows, a quarter is 3, for shares are rounded up.
  const Array few(init::Sparse(0.25)({10, 4}, esp::float64));
  for (int64_t column = 0; column < 4; ++column) {
    int zeros = 0;
    for (int64_t row = 0; row < 10; ++row) zeros += few({row, column}) == 0;
    BOOST_TEST(zeros == 3);
  }
  BOOST_CHECK_EXCEPTION(init::Sparse(0.5)({2}), esp::ShapeError, says({"Sparse", "2 axes"}));
  BOOST_CHECK_EXCEPTION(init::Sparse(1.5), esp::Error, says({"Sparse", "1.5"}));
  BOOST_CHECK_EXCEPTION(init::Sparse(0.5, -1), esp::Error, says({"Sparse: stddev", "-1"}));
}

BOOST_AUTO_TEST_CASE(truncated_normal_numbers) {
  esp::seed(5);
  struct Case {
    double mean, stddev, low, high, expected_mean, expected_deviation;
  };
  // The moments of the truncated distribution, from its formulas.
  for (const Case& c : {Case{0, 1, -2, 2, 0, 0.8796}, Case{1, 0.5, 0.5, 3, 1.1437, 0.3971},
                        Case{0, 1, 4, 5, 4.2236, 0.2071}, Case{0, 1, -5, -4, -4.2236, 0.2071}}) {
    const Array x(init::TruncatedNormal(c.mean, c.stddev, c.low, c.high)({200, 250}, esp::float64));
    double sum = 0, squares = 0;
    for (const double v : x.values) {
      sum += v, squares += v * v;
      BOOST_REQUIRE((v >= c.low && v <= c.high));
    }
    const double count = static_cast<double>(x.values.size()), mean = sum / count;
    BOOST_TEST(std::abs(mean - c.expected_mean) < 0.02);
    BOOST_TEST(std::abs(std::sqrt(squares / count - mean * mean) - c.expected_deviation) < 0.02);
    // The distribution function at each number is uniform: its quarters have as many numbers.
    const auto phi = [&](double v) { return std::erfc(-(v - c.mean) / c.stddev / std::sqrt(2.0)); };
    std::array<int, 4> quarters{};
    for (const double v : x.values)
      ++quarters[static_cast<size_t>(
          std::clamp(4 * (phi(v) - phi(c.low)) / (phi(c.high) - phi(c.low)), 0.0, 3.0))];
    for (const int quarter : quarters) BOOST_TEST(std::abs(quarter / count - 0.25) < 0.02);
  }
  BOOST_CHECK_EXCEPTION(init::TruncatedNormal(0, 1, 60, 70), esp::Error,
                        says({"TruncatedNormal", "60", "70", "no probability"}));
  BOOST_CHECK_EXCEPTION(init::TruncatedNormal(0, 0), esp::Error, says({"TruncatedNormal: stddev"}));
  BOOST_CHECK_EXCEPTION(init::TruncatedNormal(0, 1, 2, -2), esp::Error,
                        says({"TruncatedNormal: low", "2", "-2"}));
}

BOOST_AUTO_TEST_CASE(gains_and_fans) {
  BOOST_TEST(init::gain_of("linear") == 1);
  BOOST_TEST(init::gain_of("sigmoid") == 1);
  BOOST_TEST(init::gain_of("tanh") == 5.0 / 3);
  BOOST_TEST(init::gain_of("relu") == std::sqrt(2.0));
  BOOST_TEST(std::abs(init::gain_of("leaky_relu", 2) - std::sqrt(0.4)) < 1e-15);
  BOOST_TEST(std::abs(init::gain_of("leaky_relu") - std::sqrt(2 / 1.0001)) < 1e-15);
  BOOST_TEST(init::gain_of("selu") == 0.75);
  BOOST_CHECK_EXCEPTION((void)init::gain_of("step"), esp::Error, says({"gain_of", "'step'"}));
  const auto scale = [](const init::Initializer& initializer) {
    esp::seed(6);
    return Array(initializer({40, 10}, esp::float64)).values[0];
  };
  BOOST_TEST(std::abs(scale(init::HeNormal(0, init::Fan::out)) * 2 - scale(init::HeNormal())) < 1e-12);
  BOOST_TEST(std::abs(scale(init::HeUniform(init::Fan::out)) * 2 - scale(init::HeUniform())) < 1e-12);
}

BOOST_AUTO_TEST_CASE(the_seed_determines_all) {
  const auto draw = [](const init::Initializer& initializer) {
    esp::seed(7);
    return initializer({6, 6});
  };
  for (const init::Initializer& initializer : std::initializer_list<init::Initializer>{
           init::Orthogonal(), init::Sparse(0.5), init::TruncatedNormal()})
    BOOST_TEST(difference(draw(initializer), draw(initializer)) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
