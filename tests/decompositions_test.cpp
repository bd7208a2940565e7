// Systems of equations and decompositions of matrices: against their definitions, with derivatives.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>

#include "espalier/core/autograd.h"
#include "espalier/core/backends.h"
#include "espalier/core/check_gradient.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/decompositions.h"
#include "espalier/ops/linalg/linalg_ops.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;
using esp::Variable;

namespace {

/// GPUs have no kernels of LAPACK's routines.
void check_on_cpu(const OpCase& c) {
  if (esp::backends().empty()) check_op(c);
}

/// Well conditioned: numbers, and `shift` on the diagonal.
Tensor regular(const Shape& shape, uint64_t which = 0, double shift = 4) {
  const Variable x = numbers(shape, -1, 1, which);
  return (x + esp::eye_like(x) * shift).value();
}
/// x · xᵀ + 1, which is symmetric and positive definite whatever x is.
Variable definite(const Variable& x) {
  return esp::matmul(x, esp::transpose(x)) + esp::eye_like(esp::matmul(x, esp::transpose(x)));
}
Variable symmetric(const Variable& x) { return x + esp::transpose(x); }

/// The product of the last two axes, for references.
Array product(const Array& a, const Array& b) {
  const auto rank = static_cast<int64_t>(a.shape.rank());
  std::vector<int64_t> sizes(a.shape.begin(), a.shape.end());
  const int64_t inner = sizes.back();
  sizes.back() = b.shape[-1];
  return Array(Shape(sizes), [&](const Index& i) {
    double sum = 0;
    for (int64_t k = 0; k < inner; ++k) {
      Index left = i, right = i;
      left[static_cast<size_t>(rank - 1)] = right[static_cast<size_t>(rank - 2)] = k;
      sum += a(left) * b(right);
    }
    return sum;
  });
}
/// Gauss' elimination with pivots for each matrix: [a | b] to [1 | a⁻¹b]; returns the determinants, too.
std::pair<Array, Array> eliminated(const Array& a, const Array& b) {
  const auto rank = static_cast<int64_t>(a.shape.rank());
  const int64_t n = a.shape[-1], k = b.shape[-1];
  const auto nn = static_cast<size_t>(n * n), nk = static_cast<size_t>(n * k);
  std::vector<int64_t> leading(a.shape.begin(), a.shape.end() - 2);
  Array x(b.shape, [&](const Index& i) { return b(i); });
  std::vector<double> whole = a.values, determinants;
  for (size_t m = 0; m < whole.size() / nn; ++m) {
    double* p = whole.data() + m * nn;
    double* q = x.values.data() + m * nk;
    double det = 1;
    for (int64_t c = 0; c < n; ++c) {
      int64_t best = c;
      for (int64_t r = c; r < n; ++r)
        if (std::abs(p[r * n + c]) > std::abs(p[best * n + c])) best = r;
      if (best != c) {
        det = -det;
        for (int64_t j = 0; j < n; ++j) std::swap(p[c * n + j], p[best * n + j]);
        for (int64_t j = 0; j < k; ++j) std::swap(q[c * k + j], q[best * k + j]);
      }
      const double pivot = p[c * n + c];
      det *= pivot;
      for (int64_t j = 0; j < n; ++j) p[c * n + j] /= pivot;
      for (int64_t j = 0; j < k; ++j) q[c * k + j] /= pivot;
      for (int64_t r = 0; r < n; ++r) {
        if (r == c) continue;
        const double factor = p[r * n + c];
        for (int64_t j = 0; j < n; ++j) p[r * n + j] -= factor * p[c * n + j];
        for (int64_t j = 0; j < k; ++j) q[r * k + j] -= factor * q[c * k + j];
      }
    }
    determinants.push_back(det);
  }
  (void)rank;
  Array dets(Shape(leading), [](const Index&) { return 0.0; });
  dets.values = determinants;
  return {x, dets};
}
Array identity(const Shape& shape) {
  return Array(shape, [](const Index& i) { return i[i.size() - 1] == i[i.size() - 2] ? 1.0 : 0.0; });
}
Array same(const std::vector<Array>& in) { return in[0]; }

/// Compares with the operand; so inputs broadcast by strides give no singular matrices.
OpCase of_matrix(std::string name, std::function<Variable(const Variable&)> f, Tensor input,
                 Reference reference) {
  return {.name = std::move(name),
          .op = [f = std::move(f)](const Variables& x) { return f(x[0]); },
          .inputs = {std::move(input)},
          .reference = std::move(reference),
          .tolerance = 1e-10,
          .tolerance32 = 2e-4,
          .roundings = 0};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(decompositions)

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
    check_on_cpu(
        {.name = "solve",
         .op = [&](const Variables& x) { return esp::solve(shifted(x[0]), x[1]); },
         .inputs = {numbers(shape, -1, 1), numbers(Shape(right), -1, 1, 1)},
         .reference =
             [&](const std::vector<Array>& in) { return eliminated(shifted_array(in[0]), in[1]).first; },
         .tolerance = 1e-11,
         .tolerance32 = 1e-4,
         .roundings = 4});
    check_on_cpu(of_matrix(
        "inverse", [&](const Variable& x) { return esp::inverse(shifted(x)); }, numbers(shape, -1, 1),
        [&](const std::vector<Array>& in) {
          return eliminated(shifted_array(in[0]), identity(in[0].shape)).first;
        }));
    check_on_cpu(of_matrix(
        "det", [&](const Variable& x) { return esp::det(shifted(x)); }, numbers(shape, -1, 1),
        [&](const std::vector<Array>& in) {
          return eliminated(shifted_array(in[0]), identity(in[0].shape)).second;
        }));
    check_on_cpu(of_matrix(
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
          check_on_cpu(
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
    check_on_cpu(of_matrix(
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
    check_on_cpu(of_matrix(
        "cholesky", [](const Variable& x) { return esp::cholesky(definite(x)); }, numbers(shape, -1, 1),
        factor));
  }
  const Variable a = definite(numbers({3, 3}));
  BOOST_TEST(difference(esp::transpose(esp::cholesky(a)).value(), esp::cholesky(a, true).value()) == 0);
}

// Factors are multiplied again: their product is the matrix, whatever their signs are.
BOOST_AUTO_TEST_CASE(qr) {
  for (const Shape& shape : {Shape{4, 3}, Shape{2, 3, 3}, Shape{2, 3, 5}, Shape{1, 1}}) {
    const Variable a = numbers(shape, -1, 1);
    const auto [q, r] = esp::qr(a);
    BOOST_TEST(difference(esp::matmul(q, r).value(), a.value()) < 1e-13);
    const Variable gram = esp::matmul(esp::transpose(q), q);
    BOOST_TEST(difference(gram.value(), esp::broadcast_like(esp::eye_like(gram), gram).value()) < 1e-13);
    BOOST_TEST(difference((r * esp::band_like(r, 0, esp::unlimited_band)).value(), r.value()) == 0);
    const auto shifted = [](const Variable& x) { return x + esp::eye_like(x) * 3.0; };
    check_on_cpu(of_matrix(
        "qr and back",
        [&](const Variable& x) {
          const auto factors = esp::qr(shifted(x));
          return esp::matmul(factors.q, factors.r) - esp::eye_like(x) * 3.0;
        },
        numbers(shape, -1, 1), same));
    for (const bool of_q : {true, false}) {
      const auto f = [&](const Variables& x) {
        const auto factors = esp::qr(shifted(x[0]));
        return esp::tanh(of_q ? factors.q : factors.r) + 0.0 * esp::sum(x[0]);
      };
      const esp::CheckResult result =
          esp::check_gradient(f, {numbers(shape, -1, 1)}, {.order = 2, .tolerance = 2e-6});
      BOOST_TEST(result.passed, result.message);
    }
  }
}

BOOST_AUTO_TEST_CASE(svd) {
  for (const Shape& shape : {Shape{4, 3}, Shape{2, 3, 3}, Shape{2, 2, 4}, Shape{1, 1}}) {
    const Variable a = numbers(shape, -1, 1);
    const auto [u, s, vt] = esp::svd(a);
    BOOST_TEST(difference(esp::matmul(u * esp::unsqueeze(s, -2), vt).value(), a.value()) < 1e-13);
    for (const Variable& gram : {esp::matmul(esp::transpose(u), u), esp::matmul(vt, esp::transpose(vt))})
      BOOST_TEST(difference(gram.value(), esp::broadcast_like(esp::eye_like(gram), gram).value()) < 1e-13);
    BOOST_TEST(difference(s.value(), esp::svdvals(a).value()) < 1e-13);
    // Signs of vectors are arbitrary, those of products of two are not.
    const auto along = [&](const Variables& x) {
      const auto factors = esp::svd(x[0]);
      return esp::matmul(esp::square(factors.u) * esp::unsqueeze(factors.s, -2), esp::square(factors.vt));
    };
    for (const std::function<Variable(const Variables&)>& f :
         {std::function<Variable(const Variables&)>(along),
          std::function<Variable(const Variables&)>([](const Variables& x) { return esp::svd(x[0]).s; }),
          std::function<Variable(const Variables&)>([](const Variables& x) { return esp::svdvals(x[0]); }),
          std::function<Variable(const Variables&)>(
              [](const Variables& x) { return esp::square(esp::svd(x[0]).u); }),
          std::function<Variable(const Variables&)>(
              [](const Variables& x) { return esp::square(esp::svd(x[0]).vt); })}) {
      const esp::CheckResult result = esp::check_gradient(f, {a.value()}, {.order = 2, .tolerance = 1e-5});
      BOOST_TEST(result.passed, result.message);
    }
  }
}

BOOST_AUTO_TEST_CASE(eigh) {
  for (const Shape& shape : {Shape{4, 4}, Shape{2, 3, 3}, Shape{1, 1}}) {
    const Variable a = symmetric(numbers(shape, -1, 1));
    const auto [values, vectors] = esp::eigh(a);
    const Variable back = esp::matmul(vectors * esp::unsqueeze(values, -2), esp::transpose(vectors));
    BOOST_TEST(difference(back.value(), a.value()) < 1e-13);
    BOOST_TEST(difference(values.value(), esp::eigvalsh(a).value()) < 1e-13);
    for (const std::function<Variable(const Variables&)>& f :
         {std::function<Variable(const Variables&)>(
              [](const Variables& x) { return esp::eigh(symmetric(x[0])).values; }),
          std::function<Variable(const Variables&)>(
              [](const Variables& x) { return esp::eigvalsh(symmetric(x[0])); }),
          std::function<Variable(const Variables&)>(
              [](const Variables& x) { return esp::square(esp::eigh(symmetric(x[0])).vectors); })}) {
      const esp::CheckResult result =
          esp::check_gradient(f, {numbers(shape, -1, 1)}, {.order = 2, .tolerance = 1e-5});
      BOOST_TEST(result.passed, result.message);
    }
  }
}

BOOST_AUTO_TEST_CASE(least_squares_pseudoinverses_powers_and_ranks) {
  for (const Shape& shape : {Shape{5, 3}, Shape{2, 3, 3}, Shape{2, 2, 4}}) {
    const Variable a = numbers(shape, -1, 1);
    std::vector<int64_t> right(shape.begin(), shape.end());
    right.back() = 2;
    const Variable b = numbers(Shape(right), -1, 1, 1), at = esp::transpose(a);
    const Variable x = esp::lstsq(a, b), p = esp::pinv(a);
    BOOST_TEST(difference(x.value(), esp::matmul(p, b).value()) < 1e-12);
    BOOST_TEST(difference(esp::matmul(at, esp::matmul(a, x)).value(), esp::matmul(at, b).value()) < 1e-12);
    BOOST_TEST(difference(esp::matmul(esp::matmul(a, p), a).value(), a.value()) < 1e-12);
    BOOST_TEST(esp::matrix_rank(a).dtype() == esp::int64);
    const auto rank = static_cast<double>(std::min(shape[-1], shape[-2]));
    BOOST_TEST(esp::max(esp::matrix_rank(a)).item() == rank);
    for (const std::function<Variable(const Variables&)>& f :
         {std::function<Variable(const Variables&)>([](const Variables& v) { return esp::pinv(v[0]); }),
          std::function<Variable(const Variables&)>(
              [&](const Variables& v) { return esp::lstsq(v[0], b); })}) {
      const esp::CheckResult result = esp::check_gradient(f, {a.value()}, {.order = 2, .tolerance = 1e-5});
      BOOST_TEST(result.passed, result.message);
    }
  }
  BOOST_TEST(esp::lstsq(regular({3, 3}), numbers({3})).shape() == Shape({3}));
  const Variable single = esp::matmul(numbers({4, 1}), numbers({1, 3}, -1, 1, 1));
  BOOST_TEST(esp::matrix_rank(single).item() == 1);
  BOOST_TEST(esp::matrix_rank(single, 2.0).item() == 0);
  // Equal singular values.
  const Variable w = esp::variable(esp::eye(3, esp::float64));
  BOOST_TEST(difference(esp::sum(esp::pinv(w)).gradient(w).value(), esp::full({3, 3}, -1, esp::float64)) <
             1e-13);

  const Variable m = regular({2, 3, 3}, 0, 2);
  BOOST_TEST(difference(esp::matrix_power(m, 5).value(),
                        esp::matmul(m, esp::matmul(m, esp::matmul(m, esp::matmul(m, m)))).value()) < 1e-12);
  BOOST_TEST(difference(esp::matmul(esp::matrix_power(m, -2), esp::matmul(m, m)).value(),
                        esp::matrix_power(m, 0).value()) < 1e-12);
  check_on_cpu(of_matrix(
      "matrix_power", [](const Variable& x) { return esp::matrix_power(x, 3); }, numbers({2, 3, 3}, -1, 1),
      [](const std::vector<Array>& in) { return product(in[0], product(in[0], in[0])); }));
}

BOOST_AUTO_TEST_CASE(what_has_no_decomposition_is_named) {
  Tensor batch = regular({2, 3, 2, 2});
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 2; ++j) batch.at<double>({1, 2, i, j}) = 1;
  const Variable b = numbers({2, 1});
  const std::string place = "matrix [1, 2] of the batch [2, 3]";
  BOOST_CHECK_EXCEPTION(esp::inverse(batch), esp::LinAlgError, says({"inverse", place, "singular", here()}));
  BOOST_CHECK_EXCEPTION(esp::solve(batch, b), esp::LinAlgError, says({"solve", place, "singular", here()}));
  BOOST_CHECK_EXCEPTION(esp::matrix_power(batch, -1), esp::LinAlgError,
                        says({"matrix_power", place, here()}));
  BOOST_CHECK_EXCEPTION(esp::inverse(esp::zeros({2, 2})), esp::LinAlgError,
                        says({"inverse", "the matrix is singular", here()}));
  const Tensor triangle = esp::tensor({{1.0, 0.0}, {1.0, 0.0}}, esp::float64);
  BOOST_CHECK_EXCEPTION(esp::triangular_solve(triangle, b), esp::LinAlgError,
                        says({"triangular_solve", "singular", "element 1", here()}));
  const Variable indefinite = -definite(numbers({2, 3, 3}));
  BOOST_CHECK_EXCEPTION(esp::cholesky(indefinite), esp::LinAlgError,
                        says({"cholesky", "matrix [0] of the batch [2]", "not positive definite", here()}));
  // In plans it is the step that throws; the parameters stay as they were.
  const Variable x = esp::placeholder("x", {2, 2}, esp::float64),
                 w = esp::parameter(esp::ones({2, 2}, esp::float64));
  const auto [y, line] = std::pair(esp::inverse(x), here());
  const esp::Executor executor = esp::sum(y * w).get_executor({.mode = esp::Mode::inference});
  BOOST_CHECK_EXCEPTION(executor.run({{"x", esp::zeros({2, 2}, esp::float64)}}), esp::LinAlgError,
                        says({"inverse", "singular", line}));
  BOOST_TEST(executor.run({{"x", esp::eye(2, esp::float64)}}).item() == 2);
}

BOOST_AUTO_TEST_CASE(mistakes_name_function_shapes_and_line) {
  const Variable a = esp::ones({3, 4}), v = esp::ones({3}), k = esp::zeros({2, 2}, esp::int64);
  BOOST_CHECK_EXCEPTION(esp::inverse(a), esp::ShapeError, says({"inverse", "square", "[3, 4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::qr(v), esp::ShapeError, says({"qr", "[3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::det(k), esp::TypeError, says({"det", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::solve(esp::ones({3, 3}), a.value().reshape({4, 3})), esp::ShapeError,
                        says({"solve", "[3, 3]", "[4, 3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::solve(esp::ones({2, 3, 3}), esp::ones({4, 3, 1})), esp::ShapeError,
                        says({"solve", here()}));
  BOOST_CHECK_EXCEPTION(esp::solve(esp::ones({3, 3}), esp::ones({3}, esp::float64)), esp::TypeError,
                        says({"solve", "float64", here()}));
  BOOST_CHECK_EXCEPTION(esp::pinv(a, -1.0), esp::Error, says({"pinv", "rtol", here()}));
  BOOST_CHECK_EXCEPTION(esp::svd(Variable()), esp::Error, says({"svd", "undefined", here()}));
}

// The matrices of a batch are shared out, and the last batch is short.
BOOST_AUTO_TEST_CASE(batches_of_matrices_eagerly_in_plans_and_on_replicas) {
  const Tensor matrices = regular({7, 3, 3}), sides = numbers({7, 3, 1});
  const auto run = [&](bool planned, std::vector<esp::Device> devices = {}) {
    const esp::data::Distributor feed({matrices, sides}, {.batch_size = 4});
    const Variable w = esp::parameter(regular({3, 3}, 5, 2)), a = feed.get_output_graphs()[0],
                   b = feed.get_output_graphs()[1];
    const Variable x = esp::solve(a + w, b), l = esp::cholesky(definite(esp::matmul(a, w)));
    const auto [q, r] = esp::qr(a + w * 2.0);
    const Variable loss = esp::mean(esp::square(x)) + esp::mean(l) * 0.1 + esp::mean(esp::square(r)) * 0.1 +
                          esp::mean(esp::slogdet(a + w).log_abs) +
                          esp::mean(esp::eigvalsh(symmetric(a + w))) + esp::mean(esp::svdvals(a + w));
    const esp::optim::Sgd sgd(0.05);
    if (planned) {
      loss.get_executor({.optimizer = sgd, .devices = std::move(devices)}).execute({.progress = false});
    } else {
      for (int64_t step = 0; step < feed.steps(); ++step) loss.forward().update(sgd);
    }
    return w.value();
  };
  const Tensor eager = run(false);
  BOOST_TEST(difference(eager, run(true)) < 1e-11);
  BOOST_TEST(difference(eager, run(true, {esp::cpu(), esp::cpu()})) < 1e-11);
}

BOOST_AUTO_TEST_SUITE_END()
