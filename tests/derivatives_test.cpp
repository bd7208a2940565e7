// gradients, jacobian, hessian, directional_derivative: against each other and formulas, frozen, errors.
#include "espalier/ops/derivatives.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/check_gradient.h"
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/subscript.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/ops.h"
#include "temporary_folder.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::Shape;
using esp::Variable;

namespace {

/// A nonlinear function [2, 3] of x [3] and w [2, 3].
Variable function(const Variable& x, const Variable& w) { return esp::tanh(x * w) + esp::square(x) * 0.5; }

Variable matrix(const Variable& jacobian) { return esp::reshape(jacobian, {6, 3}); }

}  // namespace

BOOST_AUTO_TEST_SUITE(derivatives)

BOOST_AUTO_TEST_CASE(they_agree_with_each_other) {
  std::vector<esp::Device> devices = gpus_to_test();
  devices.push_back(esp::cpu());
  for (const esp::Device device : devices) BOOST_TEST_CONTEXT(device.str()) {
      const auto leaf = [&](const Shape& shape, uint64_t which) {
        return esp::variable(numbers(shape, -1, 1, which).to(device));
      };
      const Variable x = leaf({3}, 1), w = leaf({2, 3}, 2), u = leaf({2, 3}, 3), v = leaf({3}, 4);
      const Variable y = function(x, w), j = esp::jacobian(y, x);
      BOOST_TEST((j.shape() == Shape{2, 3, 3}));
      for (int64_t a = 0; a < 2; ++a)
        for (int64_t b = 0; b < 3; ++b) BOOST_TEST(difference(j[a][b], y[a][b].gradient(x)) < 1e-12);
      const std::vector<Variable> both = esp::gradients(y, {x, w}, u);
      BOOST_TEST(difference(both[0], esp::sum(esp::unsqueeze(u, -1) * j, {0, 1})) < 1e-12);
      BOOST_TEST(difference(both[1], esp::sum(y * u).gradient(w)) < 1e-12);
      BOOST_TEST(difference(esp::gradients(y, {w})[0], y.gradient(w)) == 0);
      BOOST_TEST(difference(esp::directional_derivative(y, x, v), esp::sum(j * v, -1)) < 1e-12);
      const Variable loss = esp::sum(y * u), h = esp::hessian(loss, x);
      BOOST_TEST(difference(h, esp::jacobian(loss.gradient(x), x)) < 1e-12);
      BOOST_TEST(difference(h, esp::transpose(h)) < 1e-12);
      BOOST_TEST(difference(esp::directional_derivative(loss.gradient(x), x, v), esp::sum(h * v, -1)) <
                 1e-12);
      BOOST_TEST((esp::jacobian(loss, w).shape() == Shape{2, 3}));
    }
}

BOOST_AUTO_TEST_CASE(of_linear_and_empty_functions) {
  const Variable x = esp::variable(numbers({3})), m = Variable(numbers({2, 3}));
  BOOST_TEST(difference(esp::jacobian(esp::sum(m * x, 1), x), m) == 0);
  BOOST_TEST(difference(esp::jacobian(x, x), Variable(esp::eye(3, esp::float64))) == 0);
  BOOST_TEST(difference(esp::hessian(esp::sum(x * 2.0), x), Variable(esp::zeros({3, 3}, esp::float64))) == 0);
  BOOST_TEST(
      difference(esp::hessian(esp::sum(esp::square(x)), x), Variable(esp::eye(3, esp::float64)) * 2.0) == 0);
  BOOST_TEST((esp::jacobian(esp::slice(x, 0, 0, 0), x).shape() == Shape{0, 3}));
  BOOST_TEST(difference(esp::directional_derivative(x * 3.0, x, Variable(numbers({3}, 0, 1))),
                        Variable(numbers({3}, 0, 1)) * 3.0) < 1e-12);
  BOOST_TEST(esp::gradients(x, {}).empty());
}

BOOST_AUTO_TEST_CASE(they_are_trees) {
  // Derivatives of them are right, and plans compute them.
  const auto penalty = [](const std::vector<Variable>& in) {
    const Variable y = function(in[0], in[1]);
    return esp::sum(esp::square(matrix(esp::jacobian(y, in[0])))) +
           esp::sum(esp::square(esp::hessian(esp::sum(esp::square(y)), in[0]))) +
           esp::sum(esp::square(esp::directional_derivative(y, in[0], in[0] * 0.5)));
  };
  const auto result = esp::check_gradient(penalty, {numbers({3}, -1, 1, 1), numbers({2, 3}, -1, 1, 2)});
  BOOST_TEST(result.passed, result.message);
  const Variable x = esp::placeholder("x", {3}, esp::float64), w = Variable(numbers({2, 3}, -1, 1, 2));
  const auto plan = penalty({x, w}).get_executor({.mode = esp::Mode::inference});
  const esp::Tensor at = numbers({3}, -1, 1, 1);
  BOOST_TEST(difference(plan.run({{"x", at}}), penalty({esp::variable(at), w}).value()) < 1e-12);
}

BOOST_AUTO_TEST_CASE(errors) {
  const Variable x = esp::variable(numbers({3})), other = esp::variable(numbers({3}));
  BOOST_CHECK_EXCEPTION(esp::jacobian(x * 2.0, other), esp::Error, says({"not made of", "jacobian", here()}));
  BOOST_CHECK_EXCEPTION(esp::jacobian(Variable(), x), esp::Error,
                        says({"jacobian: y is an undefined", here()}));
  BOOST_CHECK_EXCEPTION(esp::hessian(x, x), esp::ShapeError, says({"hessian: y of shape [3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::gradients(x, {Variable()}), esp::Error, says({"gradients: an x", here()}));
  BOOST_CHECK_EXCEPTION(esp::gradients(x * x, {x}, Variable(numbers({2}))), esp::ShapeError,
                        says({"cotangent", "[2]", "[3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::gradients(x * x, {x}, Variable(esp::ones({3}))), esp::TypeError,
                        says({"float32", "float64", here()}));
  BOOST_CHECK_EXCEPTION(esp::directional_derivative(x, x, Variable(numbers({1}))), esp::ShapeError,
                        says({"tangent", "[1]", here()}));
  const Variable open = esp::placeholder("open", {-1, 2}, esp::float64);
  BOOST_CHECK_EXCEPTION(esp::jacobian(open * 2.0, open), esp::UnsupportedError,
                        says({"jacobian: a size of", "open", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
