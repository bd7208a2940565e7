// The gradient checker: it must accept correct gradients and reject wrong ones.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/check_gradient.h"
#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/ops/ops.h"

namespace esp = espalier;
using Variables = std::vector<esp::Variable>;

namespace {

/// x³ with the given gradient rule.
esp::CustomOp cube(std::function<esp::Variable(const esp::Variable& x, const esp::Variable& g)> rule) {
  return esp::custom_op(
      {.name = "cube",
       .forward =
           [](const std::vector<esp::Tensor>& in) {
             esp::Tensor out = in[0].clone();
             for (double& v : out.span<double>()) v = v * v * v;
             return out;
           },
       .gradient =
           [=](const esp::CustomGradient& g) { return Variables{rule(g.inputs[0], g.output_gradient)}; }});
}

esp::CheckResult check(const esp::CustomOp& op, int order, const esp::Tensor& x) {
  return esp::check_gradient([&](const Variables& v) { return op({v[0]}); }, {x}, {.order = order});
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

BOOST_AUTO_TEST_SUITE(check_gradient)

BOOST_AUTO_TEST_CASE(right_gradients_pass) {
  esp::seed(4);
  const esp::Tensor a = esp::randn({3, 4}, esp::float64), b = esp::randn({4}, esp::float64);
  const auto result = esp::check_gradient(
      [](const Variables& v) { return esp::tanh(v[0] * v[1]) / (v[0] * v[0] + 1); }, {a, b}, {.order = 2});
  BOOST_TEST(result.passed, result.message);
  BOOST_TEST(result.max_error < 1e-7);
  BOOST_TEST(result.message.empty());
  // Large and small inputs, rank 0, empty tensors.
  for (double x : {1e-8, 1.0, 1e6})
    BOOST_TEST(esp::check_gradient([](const Variables& v) { return esp::sqrt(v[0]) * v[0]; },
                                   {esp::tensor(1 + x, esp::float64)}, {.order = 2})
                   .passed);
  BOOST_TEST(esp::check_gradient([](const Variables& v) { return v[0] * 2; }, {esp::zeros({0}, esp::float64)})
                 .passed);
  BOOST_TEST(
      esp::check_gradient([](const Variables&) { return esp::Variable(esp::ones({2}, esp::float64)); }, {})
          .passed);
}

BOOST_AUTO_TEST_CASE(inputs_may_be_ignored) {
  auto result =
      esp::check_gradient([](const Variables& v) { return v[1] * 3; },
                          {esp::randn({2}, esp::float64), esp::randn({3}, esp::float64)}, {.order = 2});
  BOOST_TEST(result.passed, result.message);
  result = esp::check_gradient(
      [](const Variables& v) { return v[0] * esp::cast(esp::greater(v[1], 0), esp::float64); },
      {esp::randn({3}, esp::float64), esp::randn({3}, esp::float64)}, {.order = 2});
  BOOST_TEST(result.passed, result.message);
}

BOOST_AUTO_TEST_CASE(wrong_first_derivatives_are_rejected) {
  const esp::Tensor x = esp::tensor({0.5, -1.0, 2.0}, esp::float64);
  using V = const esp::Variable&;
  BOOST_TEST(check(cube([](V x, V g) { return g * 3 * x * x; }), 1, x).passed);
  const auto wrong_factor = check(cube([](V x, V g) { return g * 2 * x * x; }), 1, x);
  BOOST_TEST(!wrong_factor.passed);
  BOOST_TEST(wrong_factor.max_error > 0.1);
  BOOST_TEST(!check(cube([](V x, V g) { return g * -3 * x * x; }), 1, x).passed);
  BOOST_TEST(!check(cube([](V x, V g) { return g * 3.00001 * x * x; }), 1, x).passed);
  BOOST_TEST(!check(cube([](V x, V) { return x * x * 3; }), 1, x).passed);  // ignores the output gradient
  BOOST_TEST(!check(cube([](V x, V g) { return g * NAN * x; }), 1, x).passed);
  BOOST_TEST(!check(cube([](V, V) { return esp::Variable(); }), 1, x).passed);  // no gradient

  // Wrong in one element: the message names it.
  const esp::Tensor spoiled = esp::tensor({1.0, 1.0, 1.5}, esp::float64);
  const auto one_element = check(cube([&](V x, V g) { return g * 3 * x * x * spoiled; }), 1, x);
  BOOST_TEST(!one_element.passed);
  BOOST_TEST(has(one_element.message, "first derivative"), one_element.message);
  BOOST_TEST(has(one_element.message, "input 0"), one_element.message);
  BOOST_TEST(has(one_element.message, "element 2"), one_element.message);
}

BOOST_AUTO_TEST_CASE(elements_swapped_are_noticed) {
  // A gradient that would be accepted if all elements had the same weight.
  const auto reverse =
      esp::custom_op({.name = "reverse",
                      .forward =
                          [](const std::vector<esp::Tensor>& in) {
                            return esp::tensor({in[0].at<double>({1}), in[0].at<double>({0})}, esp::float64);
                          },
                      .gradient = [](const esp::CustomGradient& g) { return Variables{g.output_gradient}; }});
  BOOST_TEST(!check(reverse, 1, esp::tensor({1.0, 2.0}, esp::float64)).passed);
}

BOOST_AUTO_TEST_CASE(wrong_second_derivatives_are_rejected) {
  const esp::Tensor x = esp::tensor({0.5, -1.0, 2.0}, esp::float64);
  using V = const esp::Variable&;
  BOOST_TEST(check(cube([](V x, V g) { return g * 3 * x * x; }), 2, x).passed);
  // The value of the first derivative is right, but one factor of it is a constant.
  const auto cut = cube([](V x, V g) { return g * 3 * x * x.value(); });
  BOOST_TEST(check(cut, 1, x).passed);
  const auto second = check(cut, 2, x);
  BOOST_TEST(!second.passed);
  BOOST_TEST(has(second.message, "second derivative"), second.message);
  const auto cut_off = cube([](V x, V g) { return g * esp::Variable((x * x * 3).value()); });
  BOOST_TEST(check(cut_off, 1, x).passed);
  BOOST_TEST(!check(cut_off, 2, x).passed);
}

BOOST_AUTO_TEST_CASE(functions_that_change_are_rejected) {
  int calls = 0;
  const auto result =
      esp::check_gradient([&](const Variables& v) { return v[0] * ++calls; }, {esp::ones({1}, esp::float64)});
  BOOST_TEST(!result.passed);
  BOOST_TEST(has(result.message, "same inputs"), result.message);
}

BOOST_AUTO_TEST_CASE(leaves_the_callers_state_alone) {
  esp::seed(8);
  const esp::Tensor x = esp::ones({3}, esp::float64), expected = esp::randn({2}, esp::float64);
  esp::seed(8);
  const esp::NoGrad no_grad;
  BOOST_TEST(esp::check_gradient([](const Variables& v) { return v[0] * v[0]; }, {x}, {.order = 2}).passed);
  BOOST_TEST(esp::randn({2}, esp::float64).at<double>({1}) == expected.at<double>({1}));
  BOOST_TEST((esp::variable({1.0f}) * 2).depth() == 0);
  for (double v : x.span<double>()) BOOST_TEST(v == 1);
}

BOOST_AUTO_TEST_CASE(bad_arguments) {
  const esp::Tensor x = esp::ones({2}, esp::float64);
  auto twice = [](const Variables& v) { return v[0] * 2; };
  BOOST_CHECK_THROW(esp::check_gradient(twice, {esp::ones({2})}), esp::TypeError);
  BOOST_CHECK_THROW(esp::check_gradient(twice, {esp::Tensor()}), esp::TypeError);
  BOOST_CHECK_THROW(
      esp::check_gradient([](const Variables& v) { return esp::cast(v[0], esp::float32); }, {x}),
      esp::TypeError);
  BOOST_CHECK_THROW(esp::check_gradient(twice, {x}, {.order = 3}), esp::Error);
  BOOST_CHECK_THROW(esp::check_gradient(twice, {x}, {.step = 0}), esp::Error);
  BOOST_CHECK_THROW(esp::check_gradient(twice, {x}, {.tolerance = NAN}), esp::Error);
  BOOST_CHECK_THROW(esp::check_gradient([](const Variables& v) { return esp::matmul(v[0], v[0]); }, {x}),
                    esp::ShapeError);
}

BOOST_AUTO_TEST_SUITE_END()
