// Elementwise functions beyond those of pointwise_test.cpp.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "espalier/core/error.h"
#include "espalier/ops/functions/exponential.h"
#include "espalier/ops/functions/rounding.h"
#include "espalier/ops/functions/special.h"
#include "espalier/ops/functions/trigonometry.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity(), pi = std::numbers::pi;
const double NaN = std::numeric_limits<double>::quiet_NaN();

/// Σ over k of a term that falls as k^-2, with the integral of the rest.
double digamma(double x) {
  double sum = 0;
  for (; x < 40; x += 1) sum -= 1 / x;
  return sum + std::log(x) - 0.5 / x - 1 / (12 * x * x) + 1 / (120 * std::pow(x, 4));
}
double trigamma(double x) {
  double sum = 0;
  for (; x < 60; x += 1) sum += 1 / (x * x);
  return sum + 1 / x + 0.5 / (x * x) + 1 / (6 * std::pow(x, 3)) - 1 / (30 * std::pow(x, 5));
}
double tetragamma(double x) {
  double sum = 0;
  for (; x < 60; x += 1) sum -= 2 / (x * x * x);
  return sum - 1 / (x * x) - 1 / std::pow(x, 3) - 0.5 / std::pow(x, 4) + 1 / (6 * std::pow(x, 6));
}
double erfinv(double y) {
  double low = -7, high = 7;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (std::erf(middle) < y ? low : high) = middle;
  }
  return low;
}

struct Unary {
  const char* name;
  esp::Variable (*op)(const esp::Operand&);
  double (*f)(double);
  double low = -2, high = 2;
  int roundings = 1;
};

const Unary unary[] = {
    {"rsqrt", esp::rsqrt, [](double x) { return 1 / std::sqrt(x); }, 0.3, 4},
    {"reciprocal", esp::reciprocal, [](double x) { return 1 / x; }, 0.5, 3},
    {"cube", esp::cube, [](double x) { return x * x * x; }},
    {"exp2", esp::exp2, [](double x) { return std::exp2(x); }},
    {"expm1", esp::expm1, [](double x) { return std::expm1(x); }},
    {"log1p", esp::log1p, [](double x) { return std::log1p(x); }, -0.7, 3},
    {"log2", esp::log2, [](double x) { return std::log2(x); }, 0.3, 4},
    {"log10", esp::log10, [](double x) { return std::log10(x); }, 0.3, 4},
    {"tan", esp::tan, [](double x) { return std::tan(x); }, -1, 1},
    {"asin", esp::asin, [](double x) { return std::asin(x); }, -0.8, 0.8},
    {"acos", esp::acos, [](double x) { return std::acos(x); }, -0.8, 0.8},
    {"atan", esp::atan, [](double x) { return std::atan(x); }},
    {"sinh", esp::sinh, [](double x) { return std::sinh(x); }},
    {"cosh", esp::cosh, [](double x) { return std::cosh(x); }},
    {"asinh", esp::asinh, [](double x) { return std::asinh(x); }},
    {"acosh", esp::acosh, [](double x) { return std::acosh(x); }, 1.5, 4},
    {"atanh", esp::atanh, [](double x) { return std::atanh(x); }, -0.8, 0.8},
    {"erfc", esp::erfc, [](double x) { return std::erfc(x); }},
    {"erfinv", esp::erfinv, erfinv, -0.8, 0.8},
    {"lgamma", esp::lgamma, [](double x) { return std::lgamma(x); }, 0.5, 5},
    {"lgamma, below 0", esp::lgamma, [](double x) { return std::lgamma(x); }, -1.8, -1.2},
    {"digamma", esp::digamma, digamma, 0.6, 5},
    {"digamma, below 0", esp::digamma, [](double x) { return digamma(x); }, -1.7, -1.3},
    {"polygamma(1)", [](const esp::Operand& x) { return esp::polygamma(1, x); }, trigamma, 0.8, 5},
    {"polygamma(2)", [](const esp::Operand& x) { return esp::polygamma(2, x); }, tetragamma, 0.8, 5},
    {"sinc", esp::sinc, [](double x) { return x == 0 ? 1 : std::sin(x * pi) / (x * pi); }, -2, 2, 8},
    {"sinc, near 0", esp::sinc, [](double x) { return std::sin(x * pi) / (x * pi); }, -0.15, 0.15, 8},
    {"frac", esp::frac, [](double x) { return x - std::trunc(x); }},
    {"ceil, flat", [](const esp::Operand& x) { return esp::ceil(x) + x * 0; },
     [](double x) { return std::ceil(x); }},
    {"round, flat", [](const esp::Operand& x) { return esp::round(x) + x * 0; },
     [](double x) { return std::nearbyint(x); }},
    {"trunc, flat", [](const esp::Operand& x) { return esp::trunc(x) + x * 0; },
     [](double x) { return std::trunc(x); }},
    {"clamp", [](const esp::Operand& x) { return esp::clamp(x, -0.75, 1.25); },
     [](double x) { return std::clamp(x, -0.75, 1.25); }},
    {"nan_to_num", [](const esp::Operand& x) { return esp::nan_to_num(x); }, [](double x) { return x; }},
};

struct Binary {
  const char* name;
  esp::Variable (*op)(const esp::Operand&, const esp::Operand&);
  double (*f)(double, double);
  double low = -2, high = 2;
  int order = 2;
  int roundings = 1;
};

double python_remainder(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

const Binary binary[] = {
    {"atan2", esp::atan2, [](double a, double b) { return std::atan2(a, b); }, 0.5, 3},
    {"hypot", esp::hypot, [](double a, double b) { return std::hypot(a, b); }, 0.5, 3},
    {"logaddexp", esp::logaddexp,
     [](double a, double b) { return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b))); }},
    {"xlogy", esp::xlogy, [](double a, double b) { return a * std::log(b); }, 0.5, 3},
    {"fmod", esp::fmod, [](double a, double b) { return std::fmod(a, b); }, 1.1, 1.9},
    {"remainder", esp::remainder, python_remainder, 1.1, 1.9},
    {"floor_divide", esp::floor_divide, [](double a, double b) { return std::floor(a / b); }, 0.5, 3, 0},
    {"heaviside", esp::heaviside, [](double a, double b) { return a == 0 ? b : double(a > 0); }, -2, 2, 0},
    {"clamp_min", esp::clamp_min, [](double a, double b) { return std::max(a, b); }},
    {"clamp_max", esp::clamp_max, [](double a, double b) { return std::min(a, b); }},
    {"lerp", [](const esp::Operand& a, const esp::Operand& b) { return esp::lerp(a, b, 0.25); },
     [](double a, double b) { return a + 0.25 * (b - a); }, -2, 2, 2, 3},
};

template <class T>
std::vector<T> list(const esp::Variable& v) {
  const esp::Tensor plain = v.value().contiguous_copy();
  return {plain.span<T>().begin(), plain.span<T>().end()};
}

bool is(const esp::Variable& v, const std::vector<double>& wanted) {
  return difference(esp::tensor_from(wanted, v.shape()), v.value()) < 1e-15;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(math_functions)

BOOST_AUTO_TEST_CASE(one_operand) {
  for (const Unary& u : unary)
    for (const esp::Shape& shape : {esp::Shape{3, 7}, {40}, {}, {2, 0, 3}})
      check_op({.name = u.name,
                .op = [&](const Variables& x) { return u.op(x[0]); },
                .inputs = {numbers(shape, u.low, u.high)},
                .reference = elementwise(u.f),
                .roundings = u.roundings});
}

BOOST_AUTO_TEST_CASE(two_operands) {
  const std::pair<esp::Shape, esp::Shape> shapes[] = {
      {{2, 19}, {2, 19}}, {{2, 1, 3}, {4, 1}}, {{}, {2, 3}}, {{33}, {1}}, {{2, 0}, {2, 1}}};
  for (const Binary& b : binary)
    for (const auto& [first, second] : shapes)
      check_op({.name = b.name,
                .op = [&](const Variables& x) { return b.op(x[0], x[1]); },
                .inputs = {numbers(first, b.low, b.high), numbers(second, b.low, b.high, 1)},
                .reference = elementwise(b.f),
                .order = b.order,
                .roundings = b.roundings});
}

BOOST_AUTO_TEST_CASE(three_operands) {
  check_op({.name = "lerp",
            .op = [](const Variables& x) { return esp::lerp(x[0], x[1], x[2]); },
            .inputs = {numbers({3, 7}), numbers({3, 7}, -2, 2, 1), numbers({7}, 0, 1, 2)},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array(in[0].shape,
                               [&](const Index& i) { return in[0](i) + in[2](i) * (in[1](i) - in[0](i)); });
                },
            .roundings = 4});
  const esp::Tensor a = numbers({9}), b = numbers({9}, -2, 2, 1);
  BOOST_TEST(difference(esp::lerp(a, b, 1.0).value(), b) == 0);
  BOOST_TEST(difference(esp::lerp(a, b, esp::tensor(1.0, esp::float64)).value(), b) == 0);
  check_op({.name = "clamp",
            .op = [](const Variables& x) { return esp::clamp(x[0], x[1], x[2]); },
            .inputs = {numbers({3, 7}), numbers({7}, -1.5, 0, 1), numbers({3, 1}, 0.5, 1.5, 2)},
            .reference =
                [](const std::vector<Array>& in) {
                  return Array(in[0].shape, [&](const Index& i) {
                    return std::min(std::max(in[0](i), in[1](i)), in[2](i));
                  });
                }});
}

BOOST_AUTO_TEST_CASE(infinities_and_nan) {
  const esp::Variable x = esp::tensor({NaN, inf, -inf, -0.0}, esp::float64);
  BOOST_TEST(is(esp::rsqrt(x), {NaN, 0, NaN, -inf}));
  BOOST_TEST(is(esp::expm1(x), {NaN, inf, -1, 0}));
  BOOST_TEST(is(esp::log1p(x), {NaN, inf, NaN, 0}));
  BOOST_TEST(is(esp::asin(x), {NaN, NaN, NaN, 0}));
  BOOST_TEST(is(esp::atan(x), {NaN, std::acos(0), -std::acos(0), 0}));
  BOOST_TEST(is(esp::erfc(x), {NaN, 0, 2, 1}));
  BOOST_TEST(is(esp::lgamma(x), {NaN, inf, inf, inf}));
  for (const esp::DType dtype : {esp::float32, esp::float64})
    BOOST_TEST(is(esp::reciprocal(esp::lgamma(esp::tensor({1.0, 2.0}, dtype))), {inf, inf}));
  BOOST_TEST(is(esp::digamma(x), {NaN, inf, NaN, inf}));
  BOOST_TEST(is(esp::digamma(esp::tensor({0.0, -1.0, -2.0}, esp::float64)), {-inf, NaN, NaN}));
  BOOST_TEST(is(esp::erfinv(esp::tensor({1.0, -1.0, 1.5, 0.0}, esp::float64)), {inf, -inf, NaN, 0}));
  for (const double below : {1e-2, 1e-4, 1e-8, 1e-15}) {  // what is left of 1 has all its digits in erfc
    const double y = 1 - below, far = esp::erfinv(esp::tensor(y, esp::float64)).item();
    BOOST_TEST(std::erfc(far) == 1 - y, boost::test_tools::tolerance(1e-12));
    BOOST_TEST(esp::erfinv(esp::tensor(-y, esp::float64)).item() == -far);
  }
  BOOST_TEST(is(esp::clamp(x, -1, 1), {NaN, 1, -1, 0}));
  BOOST_TEST(is(esp::round(x), {NaN, inf, -inf, 0}));
  BOOST_TEST(is(esp::frac(x), {NaN, NaN, NaN, 0}));
  BOOST_TEST(is(esp::heaviside(x, 0.5), {0, 1, 0, 0.5}));
  BOOST_TEST(is(esp::nan_to_num(x, 7, 8), {7, 8, -std::numeric_limits<double>::max(), 0}));
  BOOST_TEST(is(esp::logaddexp(x, x), {NaN, inf, -inf, std::log(2)}));
  BOOST_TEST(is(esp::hypot(x, 3), {NaN, inf, inf, 3}));
  BOOST_TEST(is(esp::hypot(x, NaN), {NaN, inf, inf, NaN}));
  BOOST_TEST(is(esp::xlogy(0, x), {NaN, 0, 0, 0}));
  BOOST_TEST(is(esp::atan2(x, -1), {NaN, std::acos(0), -std::acos(0), -std::acos(-1)}));
  BOOST_TEST(list<bool>(esp::isnan(x)) == (std::vector<bool>{true, false, false, false}));
  BOOST_TEST(list<bool>(esp::isinf(x)) == (std::vector<bool>{false, true, true, false}));
  BOOST_TEST(list<bool>(esp::isposinf(x)) == (std::vector<bool>{false, true, false, false}));
  BOOST_TEST(list<bool>(esp::isneginf(x)) == (std::vector<bool>{false, false, true, false}));
  BOOST_TEST(list<bool>(esp::isfinite(x)) == (std::vector<bool>{false, false, false, true}));
  const esp::Variable whole = esp::tensor({int64_t{1}, INT64_MAX});
  BOOST_TEST(list<bool>(esp::isfinite(whole)) == (std::vector<bool>{true, true}));
  BOOST_TEST(list<bool>(esp::isnan(whole)) == (std::vector<bool>{false, false}));
  BOOST_TEST(esp::nan_to_num(whole).node() == whole.node());
  for (const esp::DType dtype : {esp::float32, esp::float16, esp::bfloat16}) {
    const esp::Tensor most = esp::nan_to_num(esp::tensor({inf, -inf, NaN}, dtype)).value().to(esp::float64);
    BOOST_TEST((std::isfinite(most.at<double>({0})) && most.at<double>({0}) > 6e4));
    BOOST_TEST(most.at<double>({1}) == -most.at<double>({0}));
    BOOST_TEST(most.at<double>({2}) == 0);
  }
}

/// Numbers, of which some are infinite or NaN.
esp::Tensor with_special(const esp::Shape& shape) {
  esp::Tensor x = numbers(shape);
  const double special[] = {inf, -inf, NaN, 0};
  for (int64_t i = 0; i < x.elements(); i += 3) x.span<double>()[static_cast<size_t>(i)] = special[i % 4];
  return x;
}

BOOST_AUTO_TEST_CASE(what_is_not_finite) {
  const Unary rows[] = {
      {"isnan", esp::isnan, [](double x) { return double(std::isnan(x)); }},
      {"isinf", esp::isinf, [](double x) { return double(std::isinf(x)); }},
      {"isposinf", esp::isposinf, [](double x) { return double(x == inf); }},
      {"isneginf", esp::isneginf, [](double x) { return double(x == -inf); }},
      {"isfinite", esp::isfinite, [](double x) { return double(std::isfinite(x)); }},
  };
  for (const Unary& row : rows)
    for (const esp::Shape& shape : {esp::Shape{3, 7}, {40}, {}, {2, 0, 3}})
      check_op({.name = row.name,
                .op = [&](const Variables& x) { return row.op(x[0]); },
                .inputs = {with_special(shape)},
                .reference = elementwise(row.f),
                .order = 0});
}

BOOST_AUTO_TEST_CASE(sinc_is_smooth_at_0) {
  const esp::Variable x = esp::variable(esp::tensor({0.0, 1.0}, esp::float64));
  esp::Variable y = esp::sum(esp::sinc(x));
  esp::Variable slope = y.gradient(x);
  BOOST_TEST(is(slope, {0, -1}));
  const esp::Tensor curvature = esp::sum(slope).gradient(x).value();
  BOOST_TEST(curvature.at<double>({0}) == -pi * pi / 3, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(is(esp::sinc(esp::tensor({NaN, inf, -inf}, esp::float64)), {NaN, NaN, NaN}));
}

BOOST_AUTO_TEST_CASE(halves_round_to_even) {
  const esp::Variable x = esp::tensor({-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999}, esp::float64);
  BOOST_TEST(is(esp::round(x), {-2, -2, 0, 0, 2, 2, 0}));
}

BOOST_AUTO_TEST_CASE(divisions_round_as_in_python) {
  const esp::Variable a = esp::tensor_from(std::vector<int64_t>{7, -7, 7, -7, 6, 0, INT64_MIN, 5}, {8}),
                      b = esp::tensor_from(std::vector<int64_t>{2, 2, -2, -2, 3, 5, -1, 0}, {8});
  BOOST_TEST(list<int64_t>(esp::floor_divide(a, b)) ==
             (std::vector<int64_t>{3, -4, -4, 3, 2, 0, INT64_MIN, 0}));
  BOOST_TEST(list<int64_t>(esp::remainder(a, b)) == (std::vector<int64_t>{1, 1, -1, -1, 0, 0, 0, 0}));
  BOOST_TEST(list<int64_t>(esp::fmod(a, b)) == (std::vector<int64_t>{1, -1, 1, -1, 0, 0, 0, 0}));
  // 1 / 0.1 is 10 when it is rounded, but 0.1 is above a tenth.
  const esp::Variable c = esp::tensor({1.0, -1.0, 5.0, -5.0, -0.5, 3.0}, esp::float64),
                      d = esp::tensor({0.1, 0.1, inf, inf, 2.0, 0.0}, esp::float64);
  BOOST_TEST(is(esp::floor_divide(c, d), {9, -10, 0, -1, -1, inf}));
  BOOST_TEST(is(esp::remainder(c, d), {std::fmod(1, 0.1), 0.1 - std::fmod(1, 0.1), 5, inf, 1.5, NaN}));
  const esp::Variable small = esp::tensor({-7, 7}, esp::int32);
  BOOST_TEST(list<int32_t>(esp::floor_divide(small, 4)) == (std::vector<int32_t>{-2, 1}));
}

BOOST_AUTO_TEST_CASE(slopes_of_rests_are_the_quotients_that_go_with_them) {
  // a / b rounds up to 36, or to -36, in float16.
  for (const auto& [a, b, floored, truncated] : {std::array{-2.009765625, -0.05584716796875, 35.0, 35.0},
                                                 {2.009765625, -0.05584716796875, -36.0, -35.0}}) {
    const esp::Variable divisor = esp::variable(esp::tensor(b).to(esp::float16));
    const esp::Tensor dividend = esp::tensor(a).to(esp::float16);
    BOOST_TEST(esp::remainder(dividend, divisor).gradient(divisor).item() == -floored);
    BOOST_TEST(esp::fmod(dividend, divisor).gradient(divisor).item() == -truncated);
  }
}

BOOST_AUTO_TEST_CASE(angles_of_any_size_beside_moderate_ones) {
  esp::Tensor x = numbers({3000}, -20, 20).to(esp::float32);
  x.at<float>({1500}) = 1e30f;
  x.at<float>({2999}) = -9e6f;
  const esp::Tensor sines = esp::sin(x).value(), tangents = esp::tan(x).value();
  for (int64_t i = 0; i < 3000; ++i) {
    const double angle = x.at<float>({i});
    BOOST_TEST(std::abs(sines.at<float>({i}) - std::sin(angle)) <= 1e-7);
    BOOST_TEST(std::abs(tangents.at<float>({i}) / std::tan(angle) - 1) <= 2e-7);
  }
}

BOOST_AUTO_TEST_CASE(gradients_at_bounds) {
  const auto slope = [](const std::function<esp::Variable(const esp::Variable&)>& f,
                        const std::vector<double>& at) {
    const esp::Variable x = esp::variable(esp::tensor_from(at, {static_cast<int64_t>(at.size())}));
    return list<double>(f(x).gradient(x));
  };
  using List = std::vector<double>;
  const auto clamped = [](const esp::Variable& x) { return esp::clamp(x, -1, 1); };
  BOOST_TEST(slope(clamped, {-2, -1, 0, 1, 2, NaN}) == (List{0, 1, 1, 1, 0, 0}));
  const auto replaced = [](const esp::Variable& x) { return esp::nan_to_num(x); };
  BOOST_TEST(slope(replaced, {1, inf, -inf, NaN}) == (List{1, 0, 0, 0}));
  BOOST_TEST(slope(esp::frac, {0.5, 2}) == (List{1, 1}));
  const auto of_low = [](const esp::Variable& x) {
    return esp::clamp(esp::tensor({0.0, 0.0, 0.0}, esp::float64), x, 5);
  };
  BOOST_TEST(slope(of_low, {-1, 0, 1}) == (List{0, 0, 1}));
  const auto entropy = [](const esp::Variable& x) { return esp::xlogy(x, 0.0); };
  BOOST_TEST(slope(entropy, {0}) == (List{0}));
}

BOOST_AUTO_TEST_CASE(mistakes) {
  const esp::Variable a = esp::ones({2, 3}), b = esp::ones({4}), whole = esp::tensor({1, 2});
  BOOST_CHECK_EXCEPTION(esp::atan2(a, b), esp::ShapeError, says({"atan2", "[2, 3]", "[4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::lgamma(whole), esp::TypeError, says({"lgamma", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::frac(whole), esp::TypeError, says({"frac", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::polygamma(-1, a), esp::Error, says({"polygamma", "-1", here()}));
  BOOST_CHECK_EXCEPTION(esp::lerp(a, b, 0.5), esp::ShapeError, says({"lerp:", "[2, 3]", "[4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::lerp(whole, 0.5, 0.5), esp::TypeError, says({"lerp:", "0.5", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::clamp(a, 0, b), esp::ShapeError, says({"clamp:", "[2, 3]", "[4]", here()}));
  BOOST_CHECK_EXCEPTION(esp::clamp(whole, 0.5, 2), esp::TypeError, says({"clamp:", "0.5", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::clamp(whole, 0, 1e30), esp::TypeError, says({"clamp:", "1e+30", here()}));
  BOOST_CHECK_EXCEPTION(esp::clamp(a, whole, 1), esp::TypeError, says({"clamp:", "int64", here()}));
  BOOST_CHECK_EXCEPTION(esp::clamp(esp::tensor(true), 0, 1), esp::TypeError,
                        says({"clamp:", "bool", here()}));
  BOOST_CHECK_EXCEPTION(esp::nan_to_num(a, 1e300), esp::TypeError,
                        says({"nan_to_num:", "1e+300", "float32", here()}));
  BOOST_CHECK_EXCEPTION(esp::nan_to_num(a, 0, 1e300), esp::TypeError, says({"nan_to_num:", here()}));
  BOOST_CHECK_EXCEPTION(esp::ceil(esp::tensor(true)), esp::TypeError, says({"ceil", "bool", here()}));
  BOOST_CHECK_EXCEPTION(esp::nan_to_num(esp::tensor(true)), esp::TypeError,
                        says({"nan_to_num", "bool", here()}));
  BOOST_CHECK_EXCEPTION(esp::clamp(esp::Variable(), 0, 1), esp::Error, says({"clamp", "undefined", here()}));
  BOOST_CHECK_EXCEPTION(esp::clamp(a, esp::Variable(), 1), esp::Error, says({"clamp", "undefined", here()}));
}

/// Also where the vectors of a kernel end, which other code computes.
BOOST_AUTO_TEST_CASE(log1p_of_negative_zero_is_negative_zero) {
  for (const esp::DType dtype : {esp::float32, esp::float64}) {
    const esp::Tensor y = esp::log1p(esp::full({35}, -0.0, dtype)).value().to(esp::float64);
    const auto* values = static_cast<const double*>(y.address());
    BOOST_TEST(std::all_of(values, values + 35, [](double v) { return v == 0 && std::signbit(v); }));
  }
}

/// As in PyTorch: infinities at 0 and at negative integers.
BOOST_AUTO_TEST_CASE(polygamma_at_its_poles) {
  const auto infinity = std::numeric_limits<double>::infinity();
  for (const esp::DType dtype : {esp::float32, esp::float64})
    for (const int64_t order : {1, 2, 3, 4})
      for (const double pole : {0.0, -1.0})
        BOOST_TEST(esp::polygamma(order, esp::full({1}, pole, dtype)).item() ==
                   (order % 2 ? infinity : -infinity));
}

BOOST_AUTO_TEST_SUITE_END()
