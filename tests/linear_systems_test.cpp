// Systems of linear equations, determinants and Cholesky's decomposition, against plain loops, with
// derivatives.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>

#include "espalier/ops/functions/decompositions.h"
#include "espalier/ops/linalg/linalg_ops.h"
#include "espalier/ops/ops.h"
#include "matrices.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;
using esp::Variable;

BOOST_AUTO_TEST_SUITE(linear_systems)

// check_op also repeats the first row or column of its inputs, which must not make these singular: the
// matrices are made regular inside.
BOOST_AUTO_TEST_CASE(systems_of_equations) {
  const auto shifted = [](const Variable& x) { return x + esp::eye_like(x) * 6.0; };
  const auto shifted_array = [](const Array& a) {
    return Array(a.shape,
                 [&](const Index& i) { return a(i) + (i[i.size() - 1] == i[i.size() - 2] ? 6 : 0); });
  };
  for (const Shape& shape : {Shape{3, 3}, Shape{2, 4, 4}, Shape{2, 1, 2, 2}, Shape{1, 1}}) {
    std::vector<int64_t> right(shape.begin(), shape.end());
    right.back() = 2;
    check_op({.name = "solve",
              .op = [&](const Variables& x) { return esp::solve(shifted(x[0]), x[1]); },
              .inputs = {numbers(shape, -1, 1), numbers(Shape(right), -1, 1, 1)},
              .reference =
                  [&](const std::vector<Array>& in) { return eliminated(shifted_array(in[0]), in[1]).first; },
              .tolerance = 1e-11,
              .tolerance32 = 1e-4,
              .roundings = 4});
    check_op(of_matrix(
        "inverse", [&](const Variable& x) { return esp::inverse(shifted(x)); }, numbers(shape, -1, 1),
        [&](const std::vector<Array>& in) {
          return eliminated(shifted_array(in[0]), identity(in[0].shape)).first;
        }));
    check_op(of_matrix(
        "det", [&](const Variable& x) { return esp::det(shifted(x)); }, numbers(shape, -1, 1),
        [&](const std::vector<Array>& in) {
          return eliminated(shifted_array(in[0]), identity(in[0].shape)).second;
        }));
    check_op(of_matrix(
        "slogdet", [&](const Variable& x) { return esp::slogdet(shifted(x)).log_abs; }, numbers(shape, -1, 1),
        [&](const std::vector<Array>& in) {
          const Array det = eliminated(shifted_array(in[0]), identity(in[0].shape)).second;
          return Array(det.shape, [&](const Index& i) { return std::log(std::abs(det(i))); });
        }));
  }
  // Leading axes are broadcast, and a vector is one column.
  const Variable a = regular({2, 1, 3, 3}), b = numbers({4, 3, 2}), v = numbers({3});
  BOOST_TEST(difference(esp::matmul(a, esp::solve(a, b)).value(),
                        esp::broadcast_to(b, {2, 4, 3, 2}).value()) < 1e-12);
  BOOST_TEST(esp::solve(regular({3, 3}), v).shape() == Shape({3}));
  BOOST_TEST(esp::solve(a, v).shape() == Shape({2, 1, 3}));
  BOOST_TEST(esp::solve(esp::zeros({0, 3, 3}), esp::zeros({0, 3, 2})).shape() == Shape({0, 3, 2}));
  BOOST_TEST(esp::inverse(esp::zeros({2, 0, 0})).shape() == Shape({2, 0, 0}));
  BOOST_TEST(difference(esp::det(esp::zeros({2, 0, 0})).value(), esp::ones({2})) == 0);
}

BOOST_AUTO_TEST_CASE(large_ones_use_all_threads) {
  for (const int64_t n : {70, 700}) {
    const Variable a = regular({2, n, n}, 3, 40), b = numbers({2, n, 5});
    BOOST_TEST(difference(esp::matmul(a, esp::solve(a, b)).value(), b.value()) < 1e-10);
    const Variable l = esp::cholesky(definite(a));
    BOOST_TEST(difference(esp::matmul(l, esp::transpose(l)).value(), definite(a).value()) < 1e-10);
  }
}

BOOST_AUTO_TEST_CASE(determinants_have_signs_and_may_be_zero) {
  const Variable swapped = esp::tensor({{0.0, 1.0}, {1.0, 0.0}}, esp::float64);
  BOOST_TEST(esp::det(swapped).item() == -1);
  BOOST_TEST(esp::slogdet(swapped).sign.item() == -1);
  BOOST_TEST(esp::slogdet(swapped).log_abs.item() == 0);
  const Variable singular = esp::tensor({{1.0, 2.0}, {2.0, 4.0}}, esp::float64);
  BOOST_TEST(esp::det(singular).item() == 0);
  const auto [sign, log_abs] = esp::slogdet(singular);
  BOOST_TEST(sign.item() == 0);
  BOOST_TEST(log_abs.item() == -INFINITY);
  // Numbers beyond the range of the determinant.
  const Variable large = esp::eye(200, esp::float32) * 1e3f;
  BOOST_TEST(esp::slogdet(large).log_abs.item() == 200 * std::log(1e3), boost::test_tools::tolerance(1e-5));
}

BOOST_AUTO_TEST_CASE(triangular_systems) {
  for (const bool upper : {false, true})
    for (const bool transposed : {false, true})
      for (const bool unit : {false, true}) {
        const esp::TriangularOptions options{.upper = upper, .transposed = transposed, .unit_diagonal = unit};
        const auto triangle = [&](const Array& a) {
          return Array(a.shape, [&](const Index& i) {
            Index at = i;
            if (transposed) std::swap(at[at.size() - 1], at[at.size() - 2]);
            const int64_t row = at[at.size() - 2], column = at[at.size() - 1];
            if (row == column) return unit ? 1.0 : a(at) + 3;
            return (column > row) == upper ? a(at) : 0.0;
          });
        };
        for (const Shape& shape : {Shape{3, 3}, Shape{2, 4, 4}}) {
          std::vector<int64_t> right(shape.begin(), shape.end());
          right.back() = 2;
          check_op(
              {.name = "triangular_solve",
               .op =
                   [&](const Variables& x) {
                     return esp::triangular_solve(x[0] + esp::eye_like(x[0]) * 3.0, x[1], options);
                   },
               .inputs = {numbers(shape, -1, 1), numbers(Shape(right), -1, 1, 1)},
               .reference =
                   [&](const std::vector<Array>& in) { return eliminated(triangle(in[0]), in[1]).first; },
               .tolerance = 1e-11,
               .tolerance32 = 1e-4,
               .roundings = 0});
        }
      }
}

BOOST_AUTO_TEST_CASE(cholesky) {
  for (const Shape& shape : {Shape{3, 3}, Shape{2, 2, 4}}) {
    const auto definite_array = [](const std::vector<Array>& in) {
      std::vector<int64_t> sizes(in[0].shape.begin(), in[0].shape.end());
      std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
      const Array t(Shape(sizes), [&](const Index& i) {
        Index at = i;
        std::swap(at[at.size() - 1], at[at.size() - 2]);
        return in[0](at);
      });
      const Array whole = product(in[0], t), one = identity(whole.shape);
      return Array(whole.shape, [&](const Index& i) { return whole(i) + one(i); });
    };
    check_op(of_matrix(
        "cholesky and back",
        [](const Variable& x) {
          const Variable l = esp::cholesky(definite(x));
          return esp::matmul(l, esp::transpose(l));
        },
        numbers(shape, -1, 1), definite_array));
    const auto factor = [&](const std::vector<Array>& in) {
      Array a = definite_array(in);
      const int64_t n = a.shape[-1];
      for (size_t m = 0; m * static_cast<size_t>(n * n) < a.values.size(); ++m) {
        double* p = a.values.data() + m * static_cast<size_t>(n * n);
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = p[i * n + j];
            for (int64_t k = 0; k < std::min(i, j); ++k) sum -= p[i * n + k] * p[j * n + k];
            p[i * n + j] = j > i ? sum : i == j ? std::sqrt(sum) : sum / p[j * n + j];
          }
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = i + 1; j < n; ++j) p[i * n + j] = 0;
      }
      return a;
    };
    check_op(of_matrix(
        "cholesky", [](const Variable& x) { return esp::cholesky(definite(x)); }, numbers(shape, -1, 1),
        factor));
  }
  for (const bool upper : {false, true})
    check_op({.name = "cholesky_solve",
              .op =
                  [=](const Variables& x) {
                    return esp::cholesky_solve(x[1], esp::cholesky(definite(x[0]), upper), upper);
                  },
              .inputs = {numbers({2, 3, 3}, -1, 1), numbers({3, 2}, -1, 1, 1)},
              .reference =
                  [](const std::vector<Array>& in) {
                    const Array a(definite(esp::tensor_from(in[0].values, in[0].shape)).value());
                    const Array b({2, 3, 2}, [&](const Index& i) { return in[1]({i[1], i[2]}); });
                    return eliminated(a, b).first;
                  },
              .tolerance = 1e-11,
              .tolerance32 = 1e-4,
              .roundings = 0});
  BOOST_CHECK_EXCEPTION(esp::cholesky_solve(esp::ones({2, 1}), esp::ones({3, 3})), esp::ShapeError,
                        says({"cholesky_solve", "[2, 1]", "[3, 3]", here()}));
  const Variable a = definite(numbers({3, 3}));
  BOOST_TEST(difference(esp::transpose(esp::cholesky(a)).value(), esp::cholesky(a, true).value()) == 0);
}

BOOST_AUTO_TEST_CASE(signs_of_determinants_have_no_gradient) {
  const esp::Variable leaf = esp::variable(esp::tensor({{4.0, 1.0}, {0.5, 3.0}}, esp::float64)),
                      x = leaf * 1.0;
  const auto [sign, log_abs] = esp::slogdet(x);
  BOOST_TEST(difference(sign.gradient(x).value(), esp::zeros({2, 2}, esp::float64)) == 0);
  BOOST_TEST(difference((sign * esp::exp(log_abs)).gradient(x).value(),
                        esp::tensor({{3.0, -0.5}, {-1.0, 4.0}}, esp::float64)) < 1e-12);
}

BOOST_AUTO_TEST_SUITE_END()
