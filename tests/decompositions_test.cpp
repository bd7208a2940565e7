// Decompositions of matrices: their factors give the matrix again, with derivatives; errors and batches of
// all.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>

#include "espalier/core/autograd.h"
#include "espalier/core/check_gradient.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/decompositions.h"
#include "espalier/ops/linalg/linalg_ops.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/sgd.h"
#include "matrices.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Tensor;
using esp::Variable;

BOOST_AUTO_TEST_SUITE(decompositions)

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
    check_op(of_matrix(
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
  check_op(of_matrix(
      "matrix_power", [](const Variable& x) { return esp::matrix_power(x, 3); }, numbers({2, 3, 3}, -1, 1),
      [](const std::vector<Array>& in) { return product(in[0], product(in[0], in[0])); }));
}

// Results are rounded once: they are those of float32 in fewer bits.
BOOST_AUTO_TEST_CASE(of_16_bit_matrices) {
  const auto check = [](const std::function<Variables(const Variable&, const Variable&)>& f, const Tensor& a,
                        const Tensor& b) {
    for (const esp::DType dtype : {esp::float16, esp::bfloat16}) BOOST_TEST_CONTEXT(esp::name(dtype)) {
        const Tensor x = a.to(dtype), y = b.to(dtype);
        const Variables narrow = f(x, y), wide = f(x.to(esp::float32), y.to(esp::float32));
        for (size_t i = 0; i < narrow.size(); ++i) {
          const bool real = esp::is_real(wide[i].dtype());
          BOOST_TEST((narrow[i].dtype() == (real ? dtype : wide[i].dtype())));
          const Tensor rounded = real ? wide[i].value().to(dtype) : wide[i].value();
          BOOST_TEST(difference(rounded.to(esp::float64), narrow[i].value().to(esp::float64)) == 0);
        }
      }
  };
  const auto product = [](const Variable& v, const Variable& s, const Variable& w) {
    return esp::matmul(v * esp::unsqueeze(s, -2), w);
  };
  for (const Shape& shape : {Shape{4, 4}, Shape{2, 3, 3}}) {
    const Tensor a = symmetric(numbers(shape, -1, 1)).value(), b = numbers(shape, -1, 1, 1);
    check([](const Variable& x, const Variable&) { return Variables{esp::eigvalsh(x)}; }, a, b);
    check([](const Variable& x, const Variable&) { return Variables{esp::svdvals(x)}; }, a, b);
    check([](const Variable& x, const Variable&) { return Variables{esp::matrix_rank(x)}; }, a, b);
    check([](const Variable& x, const Variable& y) { return Variables{esp::lstsq(x, y)}; }, a, b);
    check(
        [](const Variable& x, const Variable&) {
          const auto [sign, log_abs] = esp::slogdet(x);
          return Variables{sign, log_abs};
        },
        a, b);
    check(
        [](const Variable& x, const Variable&) {
          const auto [values, vectors] = esp::eigh(x);
          return Variables{values, vectors};
        },
        a, b);
    for (const esp::DType dtype : {esp::float16, esp::bfloat16}) {
      const auto [values, vectors] = esp::eigh(a.to(dtype));
      const Variable v = esp::cast(vectors, esp::float64), s = esp::cast(values, esp::float64);
      const double unit = dtype == esp::float16 ? 0x1p-11 : 0x1p-8;
      BOOST_TEST(difference(product(v, s, esp::transpose(v)).value(), a) < 8 * unit);
      const Variable w = esp::variable(a.to(dtype));
      const Variable of_sum = esp::sum(esp::eigvalsh(w)).gradient(w);  // that of the trace
      BOOST_TEST((of_sum.dtype() == dtype));
      BOOST_TEST(difference(esp::cast(of_sum, esp::float64).value(),
                            esp::broadcast_like(esp::eye_like(v), v).value()) < 8 * unit);
    }
  }
}

BOOST_AUTO_TEST_CASE(matrices_without_elements) {
  for (const Shape& shape : {Shape{3, 0}, Shape{0, 3}, Shape{0, 0}, Shape{2, 0, 3}, Shape{0, 2, 3}}) {
    const Variable a = esp::variable(esp::zeros(shape, esp::float64));
    const Variable p = esp::pinv(a), rank = esp::matrix_rank(a);
    BOOST_TEST(p.shape() == esp::transpose(a).shape());
    BOOST_TEST(esp::sum(p).gradient(a).shape() == shape);
    BOOST_TEST(rank.rank() == shape.rank() - 2);
    BOOST_TEST(esp::sum(rank).item() == 0);
    BOOST_TEST(esp::sum(esp::matrix_rank(a, 0.5)).item() == 0);
  }
  const Variable x = esp::placeholder("x", {-1, 3}, esp::float64);
  const esp::Executor executor = esp::matrix_rank(x).get_executor();
  BOOST_TEST(executor.run({{"x", esp::zeros({0, 3}, esp::float64)}}).item() == 0);
  BOOST_TEST(executor.run({{"x", esp::eye(3, esp::float64)}}).item() == 3);
}

BOOST_AUTO_TEST_CASE(what_is_not_finite_has_no_cholesky_factor) {
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)})
    for (const auto& [row, column] : {std::pair(0, 0), std::pair(2, 0), std::pair(2, 1), std::pair(2, 2)}) {
      Tensor a = definite(numbers({3, 3})).value().clone();
      a.at<double>({row, column}) = bad;
      BOOST_CHECK_EXCEPTION(esp::cholesky(a), esp::LinAlgError,
                            says({"cholesky", "not positive definite", here()}));
      BOOST_CHECK_THROW(esp::cholesky(a.to(esp::float32)), esp::LinAlgError);
    }
  Tensor unread = definite(numbers({3, 3})).value().clone();
  const Tensor before = esp::cholesky(unread).value();
  unread.at<double>({0, 2}) = NAN;  // the upper triangle
  BOOST_TEST(difference(before, esp::cholesky(unread).value()) == 0);
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
  BOOST_CHECK_EXCEPTION(esp::det(a), esp::ShapeError, says({"det", "square", "[3, 4]", here()}));
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
    const Variable columns = esp::solve(w, esp::transpose(esp::squeeze(b, -1)));  // of one matrix
    const auto [q, r] = esp::qr(a + w * 2.0);
    const Variable loss = esp::mean(esp::square(x)) + esp::mean(esp::square(columns)) + esp::mean(l) * 0.1 +
                          esp::mean(esp::square(r)) * 0.1 + esp::mean(esp::slogdet(a + w).log_abs) +
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
