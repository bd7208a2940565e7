// Elementwise activations beyond those of pointwise_test.cpp.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/executor/executor.h"
#include "espalier/ops/functions/piecewise_activation.h"
#include "espalier/ops/functions/smooth_activation.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
const double NaN = std::numeric_limits<double>::quiet_NaN();

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Activation {
  const char* name;
  esp::Variable (*op)(const esp::Operand&);
  double (*f)(double);
  double low = -4, high = 4;
  int roundings = 1;
};

const Activation table[] = {
    {"gelu, tanh", [](const esp::Operand& x) { return esp::gelu(x, esp::GeluApproximation::tanh); },
     [](double x) {
       return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1)) * (x + 0.044715 * x * x * x)));
     }},
    {"gelu, none", [](const esp::Operand& x) { return esp::gelu(x, esp::GeluApproximation::none); },
     [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2)); }},
    {"silu", esp::silu, [](double x) { return x * sigmoid(x); }},
    {"mish", esp::mish, [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
    {"softplus", [](const esp::Operand& x) { return esp::softplus(x); },
     [](double x) { return std::log1p(std::exp(x)); }},
    {"softplus with options", [](const esp::Operand& x) { return esp::softplus(x, 2, 3); },
     [](double x) { return 2 * x > 3 ? x : std::log1p(std::exp(2 * x)) / 2; }},
    {"log_sigmoid", esp::log_sigmoid, [](double x) { return -std::log1p(std::exp(-x)); }},
    {"softsign", esp::softsign, [](double x) { return x / (1 + std::abs(x)); }},
    {"tanhshrink", esp::tanhshrink, [](double x) { return x - std::tanh(x); }},
    {"leaky_relu", [](const esp::Operand& x) { return esp::leaky_relu(x, 0.2); },
     [](double x) { return x > 0 ? x : 0.2 * x; }, -4, 4, 2},
    {"elu", [](const esp::Operand& x) { return esp::elu(x, 0.75); },
     [](double x) { return x > 0 ? x : 0.75 * std::expm1(x); }},
    {"celu", [](const esp::Operand& x) { return esp::celu(x, 0.75); },
     [](double x) { return x > 0 ? x : 0.75 * std::expm1(x / 0.75); }},
    {"selu", esp::selu,
     [](double x) { return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x)); }},
    {"relu6", esp::relu6, [](double x) { return std::clamp(x, 0.0, 6.0); }, -3, 9},
    {"hardtanh", [](const esp::Operand& x) { return esp::hardtanh(x, -1, 2); },
     [](double x) { return std::clamp(x, -1.0, 2.0); }},
    {"hardsigmoid", esp::hardsigmoid, [](double x) { return std::clamp(x / 6 + 0.5, 0.0, 1.0); }},
    {"hardswish", esp::hardswish, [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }},
    {"softshrink", [](const esp::Operand& x) { return esp::softshrink(x, 0.75); },
     [](double x) { return x > 0.75    ? x - 0.75
                           : x < -0.75 ? x + 0.75
                                       : 0; }},
    {"hardshrink", [](const esp::Operand& x) { return esp::hardshrink(x, 0.75); },
     [](double x) { return std::abs(x) > 0.75 ? x : 0; }},
    {"threshold", [](const esp::Operand& x) { return esp::threshold(x, 0.5, -2); },
     [](double x) { return x > 0.5 ? x : -2; }},
    {"rrelu of one slope", [](const esp::Operand& x) { return esp::rrelu(x, 0.25, 0.25); },
     [](double x) { return x > 0 ? x : 0.25 * x; }},
};

template <class T>
std::vector<T> list(const esp::Variable& v) {
  const esp::Tensor plain = v.value().contiguous_copy();
  return {plain.span<T>().begin(), plain.span<T>().end()};
}

/// The values of f at some points, and its slopes there.
struct Checked {
  std::vector<double> values, slopes;
};
Checked at(const std::function<esp::Variable(const esp::Operand&)>& f, const std::vector<double>& points) {
  const esp::Variable x = esp::variable(esp::tensor_from(points, {static_cast<int64_t>(points.size())}));
  const esp::Variable y = f(x);
  return {list<double>(y), list<double>(y.gradient(x))};
}
bool same(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double p, double q) {
    return p == q || (std::isnan(p) && std::isnan(q)) || std::abs(p - q) < 1e-14;
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(activations)

BOOST_AUTO_TEST_CASE(values_and_derivatives) {
  for (const Activation& a : table)
    for (const esp::Shape& shape : {esp::Shape{3, 7}, {40}, {}, {2, 0, 3}})
      check_op({.name = a.name,
                .op = [&](const Variables& x) { return a.op(x[0]); },
                .inputs = {numbers(shape, a.low, a.high)},
                .reference = elementwise(a.f),
                .roundings = a.roundings});
}

BOOST_AUTO_TEST_CASE(gated) {
  check_op({.name = "glu",
            .op = [](const Variables& x) { return esp::glu(x[0], 1); },
            .inputs = {numbers({3, 6, 2})},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array({3, 3, 2}, [&](const Index& i) {
                    return in[0](i) * sigmoid(in[0]({i[0], i[1] + 3, i[2]}));
                  });
                },
            .roundings = 2});
}

BOOST_AUTO_TEST_CASE(gates_of_many_elements) {
  for (const auto& [shape, axis] : std::vector<std::pair<esp::Shape, int64_t>>{
           {{3, 5002}, -1}, {{4, 6000}, 0}, {{2, 6, 700}, 1}, {{2, 0}, 1}, {{0, 4}, 1}}) {
    const esp::Tensor x = numbers(shape, -3, 3).to(esp::float32);
    const int64_t half = shape[axis] / 2;
    const esp::Variable expected =
        esp::slice(x, axis, 0, half) * esp::sigmoid(esp::slice(x, axis, half, 2 * half));
    const esp::Tensor found = esp::glu(x, axis).value();
    BOOST_TEST((found.shape() == expected.shape()));
    BOOST_TEST(difference(found, expected.value()) == 0);
  }
}

BOOST_AUTO_TEST_CASE(learned_slopes) {
  for (const auto& [shape, slopes] : {std::pair<esp::Shape, esp::Shape>{{5, 3, 2}, {3}},
                                      {{5, 3}, {3}},
                                      {{5, 3}, {1}},
                                      {{5, 3}, {}},
                                      {{4}, {4}},
                                      {{}, {}},
                                      {{}, {1}}})
    check_op({.name = "prelu",
              .op = [](const Variables& x) { return esp::prelu(x[0], x[1]); },
              .inputs = {numbers(shape), numbers(slopes, 0.1, 0.5, 1)},
              .reference =
                  [](const std::vector<Array>& in) {
                    return Array(in[0].shape, [&](const Index& i) {
                      const bool channels = in[1].shape.rank() == 1 && in[1].shape[0] > 1;
                      const int64_t channel = channels ? i[i.size() > 1 ? 1 : 0] : 0;
                      const double x = in[0](i), slope = in[1].values[static_cast<size_t>(channel)];
                      return x > 0 ? x : slope * x;
                    });
                  }});
}

BOOST_AUTO_TEST_CASE(at_corners) {
  const auto check = [](const char* name, const std::function<esp::Variable(const esp::Operand&)>& f,
                        const std::vector<double>& points, const std::vector<double>& values,
                        const std::vector<double>& slopes) {
    const Checked got = at(f, points);
    BOOST_TEST(same(got.values, values), name << " has other values");
    BOOST_TEST(same(got.slopes, slopes), name << " has other slopes");
  };
  using Operand = const esp::Operand&;
  check("leaky_relu", [](Operand x) { return esp::leaky_relu(x, 0.1); }, {0, inf, -inf, NaN},
        {0, inf, -inf, NaN}, {0.1, 1, 0.1, 0.1});
  check("elu", [](Operand x) { return esp::elu(x, 2); }, {0, inf, -inf, NaN}, {0, inf, -2, NaN},
        {2, 1, 0, NaN});
  check("celu", [](Operand x) { return esp::celu(x, 2); }, {0, inf, -inf}, {0, inf, -2}, {1, 1, 0});
  check("relu6", esp::relu6, {-1, 0, 3, 6, 7, NaN}, {0, 0, 3, 6, 6, NaN}, {0, 0, 1, 0, 0, 1});
  check("hardsigmoid", esp::hardsigmoid, {-3, 0, 3, inf}, {0, 0.5, 1, 1}, {0, 1.0 / 6, 0, 0});
  check("hardswish", esp::hardswish, {-3, 0, 3, -inf, inf}, {0, 0, 3, 0, inf}, {0, 0.5, 1, 0, 1});
  check("softshrink", [](Operand x) { return esp::softshrink(x); }, {-0.5, 0.5, 1, inf, NaN},
        {0, 0, 0.5, inf, NaN}, {0, 0, 1, 1, 1});
  check("hardshrink", [](Operand x) { return esp::hardshrink(x); }, {-0.5, 0.5, 1, inf, NaN},
        {0, 0, 1, inf, NaN}, {0, 0, 1, 1, 1});
  check("threshold", [](Operand x) { return esp::threshold(x, 1, 5); }, {0, 1, 2, NaN}, {5, 5, 2, NaN},
        {0, 0, 1, 1});
  check("silu", esp::silu, {0, 800, -800, inf, -inf, NaN}, {0, 800, 0, inf, 0, NaN}, {0.5, 1, 0, 1, 0, NaN});
  check("mish", esp::mish, {0, 800, -800, inf, -inf, NaN}, {0, 800, 0, inf, 0, NaN}, {0.6, 1, 0, 1, 0, NaN});
  check("gelu, tanh", [](Operand x) { return esp::gelu(x, esp::GeluApproximation::tanh); },
        {0, 800, -800, inf, -inf, NaN}, {0, 800, 0, inf, 0, NaN}, {0.5, 1, 0, 1, 0, NaN});
  check("softplus", [](Operand x) { return esp::softplus(x); }, {0, 800, -800, inf, -inf, NaN},
        {std::log(2), 800, 0, inf, 0, NaN}, {0.5, 1, 0, 1, 0, NaN});
  check("log_sigmoid", esp::log_sigmoid, {0, 800, -800, inf, -inf, NaN},
        {-std::log(2), 0, -800, 0, -inf, NaN}, {0.5, 0, 1, 0, 1, NaN});
  check("softsign", esp::softsign, {0, 1e300, -3}, {0, 1, -0.75}, {1, 0, 0.0625});
}

// PyTorch's figures: the second derivative at 0 is that of the right side, and the first that of the left.
BOOST_AUTO_TEST_CASE(second_derivatives_at_zero) {
  using Activation = std::function<esp::Variable(const esp::Variable&)>;
  struct Corner {
    const char* name;
    Activation f;
    double slope, below;  // the second derivative a little below 0
  };
  const Corner corners[] = {
      {"elu", [](const esp::Variable& x) { return esp::elu(x, 2); }, 2, 2},
      {"celu", [](const esp::Variable& x) { return esp::celu(x, 2); }, 1, 0.5},
      {"selu", [](const esp::Variable& x) { return esp::selu(x); }, 1.7580993408473766, 1.7580993408473766}};
  for (const Corner& corner : corners) {
    const esp::Variable x = esp::variable(esp::tensor({0.0, -0.0, -1e-12, 1e-12, NaN}, esp::float64));
    const esp::Variable first = esp::sum(corner.f(x)).gradient(x);
    BOOST_TEST(std::abs(first.value().at<double>({0}) - corner.slope) < 1e-12, corner.name);
    const esp::Tensor second = esp::sum(first).gradient(x).value();
    const esp::Tensor wanted = esp::tensor({0.0, 0.0, corner.below, 0.0, NaN}, esp::float64);
    BOOST_TEST(difference(wanted, second) < 1e-11, corner.name);
  }
}

BOOST_AUTO_TEST_CASE(random_slopes) {
  const esp::Variable x = esp::full({1000}, -1), y = esp::rrelu(x, 0.25, 0.5);
  const std::vector<float> slopes = list<float>(-y);
  const auto [least, most] = std::minmax_element(slopes.begin(), slopes.end());
  BOOST_TEST((*least >= 0.25f && *least < 0.27f && *most <= 0.5f && *most > 0.48f));
  const esp::Variable fed = esp::placeholder("x", {4}, esp::float32);
  const esp::Executor executor = esp::rrelu(fed, 0.25, 0.5).get_executor({.mode = esp::Mode::inference});
  const esp::Tensor got = executor.run({{"x", esp::tensor({-1.0, -2.0, 0.0, 3.0})}});
  BOOST_TEST(list<float>(got) == (std::vector<float>{-0.375f, -0.75f, 0, 3}));
}

BOOST_AUTO_TEST_CASE(mistakes) {
  const esp::Variable x = esp::ones({2, 3}), whole = esp::tensor({1, 2});
  for (auto op : {esp::silu, esp::mish, esp::selu, esp::hardswish, esp::relu6, esp::log_sigmoid})
    BOOST_CHECK_EXCEPTION(op(whole), esp::TypeError, says({"int64", "real numbers", "[2]"}));
  BOOST_CHECK_EXCEPTION(esp::prelu(x, esp::ones({2})), esp::ShapeError,
                        says({"prelu", "[2]", "[2, 3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::glu(x), esp::ShapeError, says({"glu", "[2, 3]", here()}));
  BOOST_CHECK_EXCEPTION(esp::glu(esp::tensor(1.0)), esp::ShapeError, says({"glu", here()}));
  BOOST_CHECK_EXCEPTION(esp::celu(x, 0), esp::Error, says({"celu", here()}));
  BOOST_CHECK_EXCEPTION(esp::softplus(x, 0), esp::Error, says({"softplus", here()}));
  BOOST_CHECK_EXCEPTION(esp::rrelu(x, 1, 0), esp::Error, says({"rrelu", "1", "0", here()}));
  BOOST_CHECK_EXCEPTION(esp::hardtanh(x, 1, 0), esp::Error, says({"hardtanh", here()}));
  BOOST_CHECK_EXCEPTION(esp::softshrink(x, -1), esp::Error, says({"softshrink", "-1", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
