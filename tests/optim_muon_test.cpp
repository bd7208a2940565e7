// Muon against its formulas, written as loops.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <vector>

#include "espalier/executor/executor.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/groups.h"
#include "espalier/optim/muon.h"
#include "replica_programs.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Variable, esp::optim::Muon, esp::optim::MuonOptions, esp::optim::MuonRate;

namespace {

struct Matrix {
  size_t rows, columns;
  std::vector<double> values;
  double& at(size_t i, size_t j) { return values[i * columns + j]; }
  double at(size_t i, size_t j) const { return values[i * columns + j]; }
};

Matrix transposed(const Matrix& a) {
  Matrix t{a.columns, a.rows, std::vector<double>(a.values.size())};
  for (size_t i = 0; i < a.rows; ++i)
    for (size_t j = 0; j < a.columns; ++j) t.at(j, i) = a.at(i, j);
  return t;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.columns, std::vector<double>(a.rows * b.columns, 0)};
  for (size_t i = 0; i < a.rows; ++i)
    for (size_t k = 0; k < a.columns; ++k)
      for (size_t j = 0; j < b.columns; ++j) c.at(i, j) += a.at(i, k) * b.at(k, j);
  return c;
}

Matrix newton_schulz(Matrix x, int64_t iterations, double epsilon) {
  const bool high = x.rows > x.columns;
  if (high) x = transposed(x);
  double squares = 0;
  for (const double v : x.values) squares += v * v;
  for (double& v : x.values) v /= std::max(std::sqrt(squares), epsilon);
  for (int64_t i = 0; i < iterations; ++i) {
    const Matrix gram = product(x, transposed(x)), squared = product(gram, gram);
    Matrix factor = gram;
    for (size_t j = 0; j < factor.values.size(); ++j)
      factor.values[j] = -4.775 * gram.values[j] + 2.0315 * squared.values[j];
    const Matrix step = product(factor, x);
    for (size_t j = 0; j < x.values.size(); ++j) x.values[j] = 3.4445 * x.values[j] + step.values[j];
  }
  return high ? transposed(x) : x;
}

/// The loss Σ(p − target)² / 2, whose gradient is p − target.
struct Target {
  explicit Target(const esp::Shape& shape, esp::DType dtype = esp::float64)
      : target(numbers(shape, -1, 1, 2).to(dtype)),
        p(esp::parameter(numbers(shape, -1, 1, 1).to(dtype), "p")) {}
  Variable loss() const { return esp::sum(esp::square(p - target)) / 2.0; }
  esp::Tensor target;
  Variable p;
};

std::vector<double> by_loops(const Target& start, const MuonOptions& o, int steps) {
  std::vector<double> p = Array(start.p.value()).values;
  const std::vector<double> target = Array(start.target).values;
  const auto rows = static_cast<size_t>(start.p.shape()[0]), columns = p.size() / rows;
  std::vector<double> m(p.size(), 0);
  for (int step = 0; step < steps; ++step) {
    Matrix u{rows, columns, std::vector<double>(p.size())};
    for (size_t i = 0; i < p.size(); ++i) {
      const double g = (p[i] - target[i]) * (o.maximize ? -1 : 1);
      m[i] = o.momentum * m[i] + (1 - o.momentum) * g;
      u.values[i] = o.nesterov ? (1 - o.momentum) * g + o.momentum * m[i] : m[i];
    }
    const Matrix direction = newton_schulz(u, o.iterations, o.epsilon);
    const auto height = static_cast<double>(rows), width = static_cast<double>(columns);
    const double rate = o.lr * (o.rate == MuonRate::original ? std::sqrt(std::max(1.0, height / width))
                                                             : 0.2 * std::sqrt(std::max(height, width)));
    for (size_t i = 0; i < p.size(); ++i)
      p[i] = p[i] * (1 - o.lr * o.weight_decay) - rate * direction.values[i];
  }
  return p;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    largest = std::max(largest, std::isnan(difference) ? INFINITY : difference);
  }
  return largest;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(optim_muon)

BOOST_AUTO_TEST_CASE(steps_are_those_of_the_formulas) {
  const std::vector<MuonOptions> options{
      {},
      {.lr = 0.02, .momentum = 0.5, .nesterov = false, .weight_decay = 0},
      {.lr = 0.05, .iterations = 3, .rate = MuonRate::match_adamw, .maximize = true}};
  for (const esp::Shape& shape :
       {esp::Shape{3, 5}, esp::Shape{6, 2}, esp::Shape{4, 4}, esp::Shape{3, 2, 2, 2}})
    for (const MuonOptions& o : options)
      for (const bool frozen : {false, true}) BOOST_TEST_CONTEXT(shape.str() << ' ' << frozen) {
          const Target problem(shape);
          const std::vector<double> expected = by_loops(problem, o, 12);
          const Muon rule(o);
          if (frozen)
            (void)problem.loss().get_executor({.optimizer = rule}).execute({.epochs = 12, .progress = false});
          else
            for (int step = 0; step < 12; ++step) problem.loss().update(rule);
          BOOST_TEST(largest_difference(Array(problem.p.value()).values, expected) < 1e-11);
        }
}

BOOST_AUTO_TEST_CASE(singular_values_become_ones) {
  // A matrix whose singular values are 3, 2, 1: its rows are orthogonal.
  const esp::Tensor rows =
      esp::tensor({{3.0, 0.0, 0.0, 0.0}, {0.0, 0.0, 2.0, 0.0}, {0.0, 1.0, 0.0, 0.0}}, esp::float64);
  const Variable p = esp::parameter(esp::zeros({3, 4}, esp::float64));
  esp::sum(p * rows).update(Muon({.lr = 1, .momentum = 0, .nesterov = false, .weight_decay = 0}));
  const std::vector<double> moved = Array(p.value()).values;
  for (size_t i = 0; i < moved.size(); ++i)
    if (i == 0 || i == 6 || i == 9)
      BOOST_TEST((moved[i] < -0.65 && moved[i] > -1.25), "element " << i << " is " << moved[i]);
    else
      BOOST_TEST(std::abs(moved[i]) < 1e-15);
}

BOOST_AUTO_TEST_CASE(no_gradient_moves_nothing) {
  const Target problem({3, 4}, esp::float32);
  const esp::Tensor start = problem.p.value().clone();
  (problem.loss() * 0.0).update(Muon({.weight_decay = 0}));
  BOOST_TEST(difference(problem.p.value(), start) == 0);
}

BOOST_AUTO_TEST_CASE(vectors_are_for_other_optimizers) {
  const Variable w = esp::parameter(numbers({2, 3}, -1, 1, 1), "w"),
                 b = esp::parameter(numbers({3}, -1, 1, 2), "b");
  const auto loss = [&] { return esp::sum(esp::square(w + b)); };
  const esp::Tensor start = w.value().clone();
  BOOST_CHECK_EXCEPTION(loss().update(Muon()), esp::Error, says({"Muon", "'b'", "[3]", "Groups"}));
  BOOST_CHECK_EXCEPTION((void)loss().get_executor({.optimizer = Muon()}), esp::Error,
                        says({"Muon", "Groups"}));
  BOOST_TEST(difference(w.value(), start) == 0);
  const double before = loss().item();
  const esp::optim::Groups rule(
      {{esp::optim::ParameterList{b}, esp::optim::Adam(0.05)}, {esp::optim::ParameterList{w}, Muon(0.05)}});
  for (int step = 0; step < 20; ++step) loss().update(rule);
  BOOST_TEST(loss().item() < before / 2);
}

BOOST_AUTO_TEST_CASE(parameters_of_16_bits) {
  const Target half({4, 3}, esp::bfloat16), whole({4, 3}, esp::float32);
  const Muon rule(0.5), other(0.5);
  const esp::Tensor start = whole.p.value().clone();
  half.loss().update(rule);
  whole.loss().update(other);
  BOOST_TEST(difference(half.p.value().to(esp::float32), whole.p.value()) < 0.02);
  BOOST_TEST(difference(whole.p.value(), start) > 0.1);
  BOOST_TEST((rule.state_of(half.p)[0].second.dtype() == esp::float32));
}

BOOST_AUTO_TEST_SUITE_END()
