// How far the functions of floats are from the exact results, over a million floats of all sizes.
#include <boost/test/unit_test.hpp>

// Tests are compiled with little optimization; these loops must be the vector code that the library runs.
#pragma GCC optimize("O3", "no-math-errno", "no-trapping-math")

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "espalier/core/scalar.h"
#include "espalier/core/scalar_activations.h"
#include "espalier/core/scalar_functions.h"
#include "espalier/core/scalar_integers.h"
#include "espalier/core/scalar_special.h"
#include "many_cases.h"
#include "scalar_loops.h"

namespace {

using namespace espalier;
using namespace espalier::testing;

/// Floats with equal distances between their bits: of both signs, all exponents, with infinities and NaN.
const std::vector<float>& floats() {
  static const std::vector<float> all = [] {
    std::vector<float> result;
    const auto step = static_cast<uint64_t>((int64_t{1} << 32) / testing::many_cases(1 << 20) + 3);
    for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += step)
      result.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    return result;
  }();
  return all;
}

double sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double silu(double x) { return x == -INFINITY ? 0 : x * sigmoid(x); }
/// The rest of a division by 2 is exact.
double sinc(double x) {
  const double rest = std::remainder(x, 2.0);
  if (x == 0) return 1;
  return rest == std::trunc(rest) ? 0 : std::sin(std::numbers::pi * rest) / (std::numbers::pi * x);
}
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double normal_share(double x) { return std::erfc(x * -std::numbers::sqrt2 / 2) / 2; }
double normal_density(double x) {
  return std::exp(x * x / -2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}
double gelu(double x) { return x < -40 ? 0 : x * normal_share(x); }
double gelu_slope(double x) { return normal_share(x) + (std::abs(x) > 40 ? 0 : x * normal_density(x)); }
double gelu_tanh(double x) {
  const double share = sigmoid(2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x));
  return share == 0 ? 0 : x * share;
}
double tanhshrink(double x) {
  return std::abs(x) < 1e-3 ? x * x * x / 3 * (1 - 0.4 * x * x) : x - std::tanh(x);
}
double mish(double x) { return x == -INFINITY ? 0 : x * std::tanh(softplus(x)); }
double selu(double x) { return 1.0507009873554804934 * (x > 0 ? x : 1.6732632423543772848 * std::expm1(x)); }

bool moderate(double x) { return std::abs(x) < double{math::moderate_angle}; }
/// What loops over angles of moderate size compute.
template <class F>
struct Bounded {
  [[gnu::always_inline]] float operator()(float x) const { return moderate(x) ? F::bounded(x) : 0.0f; }
};

/// What loops over positive numbers compute.
template <class F>
struct BoundedToPositive {
  [[gnu::always_inline]] float operator()(float x) const { return F::within(x) ? F::bounded(x) : 0.0f; }
};
bool is_positive(double x) { return x > 0 && x < INFINITY; }

/// The number of the operands that `exact` is to use.
double number_of_case = 0;

/// f with a number as its second operand.
template <class F>
struct With {
  float number;
  [[gnu::always_inline]] float operator()(float x) const { return F()(x, number); }
};

/// f with a number as its first operand.
template <class F>
struct Of {
  float number;
  [[gnu::always_inline]] float operator()(float x) const { return F()(number, x); }
};
double log_add_exp(double a, double b) {
  return a == b ? a + std::numbers::ln2 : std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
}

/// Up to `absolute`, results may differ by more units.
template <class F>
void check(const char* name, F f, double (*exact)(double), double bound, double absolute = 0) {
  const std::vector<float>& x = floats();
  std::vector<double> expected;
  for (const float v : x) expected.push_back(exact(v));
  at_every_level([&] {
    const std::vector<float> y = apply<float>(f, x);
    double worst = 0;
    size_t where = 0;
    for (size_t i = 0; i < x.size(); ++i)
      if (const double error = ulps(y[i], expected[i]);
          error > worst && !(std::abs(y[i] - expected[i]) <= absolute))
        worst = error, where = i;
    BOOST_TEST(worst <= bound, name << " of " << x[where] << " is " << y[where] << ", by " << worst
                                    << " units from " << expected[where]);
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(accuracy)

BOOST_AUTO_TEST_CASE(within_one_unit) {
  check(
      "exp", scalar::Exp(), [](double x) { return std::exp(x); }, 1);
  check(
      "log", scalar::Log(), [](double x) { return std::log(x); }, 1);
  check(
      "log1p", scalar::Log1p(), [](double x) { return std::log1p(x); }, 1);
  check(
      "expm1", scalar::Expm1(), [](double x) { return std::expm1(x); }, 1);
  check(
      "tanh", scalar::Tanh(), [](double x) { return std::tanh(x); }, 1);
  check("sigmoid", scalar::Sigmoid(), sigmoid, 1);
  check(
      "erf", scalar::Erf(), [](double x) { return std::erf(x); }, 1);
  check(
      "erfc", scalar::Erfc(), [](double x) { return std::erfc(x); }, 1);
  check(
      "exp2", scalar::Exp2(), [](double x) { return std::exp2(x); }, 1);
  check(
      "log2", scalar::Log2(), [](double x) { return std::log2(x); }, 1);
  check(
      "log10", scalar::Log10(), [](double x) { return std::log10(x); }, 1);
  check(
      "sin", scalar::Sin(), [](double x) { return std::sin(x); }, 1);
  check(
      "cos", scalar::Cos(), [](double x) { return std::cos(x); }, 1);
  check(
      "tan", scalar::Tan(), [](double x) { return std::tan(x); }, 1);
  check(
      "asin", scalar::Asin(), [](double x) { return std::asin(x); }, 1);
  check(
      "acos", scalar::Acos(), [](double x) { return std::acos(x); }, 1);
  check(
      "atan", scalar::Atan(), [](double x) { return std::atan(x); }, 1);
  check(
      "sin of moderate angles", Bounded<scalar::Sin>(),
      [](double x) { return moderate(x) ? std::sin(x) : 0; }, 1);
  check(
      "cos of moderate angles", Bounded<scalar::Cos>(),
      [](double x) { return moderate(x) ? std::cos(x) : 0; }, 1);
  check(
      "tan of moderate angles", Bounded<scalar::Tan>(),
      [](double x) { return moderate(x) ? std::tan(x) : 0; }, 1);
  check(
      "lgamma of positive numbers", BoundedToPositive<scalar::Lgamma>(),
      [](double x) { return is_positive(x) ? std::lgamma(x) : 0; }, 1);
  check(
      "digamma of positive numbers", BoundedToPositive<scalar::Digamma>(),
      [](double x) { return is_positive(x) ? scalar::Digamma()(x) : 0; }, 1);
  check(
      "digamma", scalar::Digamma(), [](double x) { return scalar::Digamma()(x); }, 1);
  check(
      "polygamma of order 1", Of<scalar::Polygamma>{1}, [](double x) { return scalar::Polygamma()(1.0, x); },
      1);
  check(
      "polygamma of order 2", Of<scalar::Polygamma>{2}, [](double x) { return scalar::Polygamma()(2.0, x); },
      1);
  check("sinc", scalar::Sinc(), sinc, 1);
  check(
      "sinh", scalar::Sinh(), [](double x) { return std::sinh(x); }, 1);
  check(
      "cosh", scalar::Cosh(), [](double x) { return std::cosh(x); }, 1);
  check(
      "asinh", scalar::Asinh(), [](double x) { return std::asinh(x); }, 1);
  check(
      "acosh", scalar::Acosh(), [](double x) { return std::acosh(x); }, 1);
  check(
      "atanh", scalar::Atanh(), [](double x) { return std::atanh(x); }, 1);
}

BOOST_AUTO_TEST_CASE(two_operands_within_one_unit) {
  for (const float n : {0.7f, -1.3f, 0.0f, -0.0f, 1e-3f, 1e-38f, -37.5f, 3e38f, INFINITY}) {
    number_of_case = n;
    BOOST_TEST_CONTEXT("with " << n) {
      check(
          "atan2 of y and a number", With<scalar::Atan2>{n},
          [](double x) { return std::atan2(x, number_of_case); }, 1);
      check(
          "atan2 of a number and x", Of<scalar::Atan2>{n},
          [](double x) { return std::atan2(number_of_case, x); }, 1);
      check(
          "hypot", With<scalar::Hypot>{n}, [](double x) { return std::hypot(x, number_of_case); }, 1);
      check(
          "fmod of a and a number", With<scalar::Fmod>{n},
          [](double x) { return std::fmod(x, number_of_case); }, 0.5);
      check(
          "fmod of a number and b", Of<scalar::Fmod>{n},
          [](double x) { return std::fmod(number_of_case, x); }, 0.5);
      check(
          "logaddexp", With<scalar::LogAddExp>{n},
          [](double x) { return std::isnan(x) ? x : log_add_exp(x, number_of_case); }, 1, 5e-9);
    }
  }
}

/// Where the result of logaddexp crosses 0, terms cancel.
BOOST_AUTO_TEST_CASE(logaddexp_beside_its_zero) {
  for (float b = -12; b < -1e-3f; b += 0.0037f) {
    const auto near = static_cast<float>(std::log1p(-std::exp(double{b})));
    for (const float a : {near, std::nextafter(near, 0.0f), near * 1.0001f})
      BOOST_TEST(std::abs(scalar::LogAddExp()(a, b) - log_add_exp(a, b)) <= 5e-9, a << " and " << b);
  }
}

/// Whole, odd and huge exponents and bases of both signs, zeros, infinities and NaN among them.
BOOST_AUTO_TEST_CASE(powers_within_one_unit) {
  for (const float n : {0.0f, -0.0f, 1.0f, -1.0f, 2.0f, 3.0f, -2.0f, -7.0f, 0.5f, -0.3f, 1.0001f, 31.0f,
                        16777215.0f, 1e10f, -1e10f, INFINITY, -INFINITY, NAN}) {
    number_of_case = n;
    BOOST_TEST_CONTEXT("with " << n) {
      check(
          "a power of x", With<scalar::Power>{n}, [](double x) { return std::pow(x, number_of_case); }, 1);
      check(
          "a number to the power of x", Of<scalar::Power>{n},
          [](double x) { return std::pow(number_of_case, x); }, 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(activations_within_one_unit) {
  check("gelu", scalar::Gelu(), gelu, 1);
  check("gelu by tanh", scalar::GeluTanh(), gelu_tanh, 1);
  check("silu", scalar::Silu(), silu, 1);
  check("mish", scalar::Mish(), mish, 1);
  for (const float beta : {1.0f, 0.3f, -0.7f, 20.0f}) {
    number_of_case = beta;
    check(
        "softplus", With<scalar::Softplus>{beta},
        [](double x) { return softplus(x * number_of_case) / number_of_case; }, 1);
  }
  check(
      "log_sigmoid", scalar::LogSigmoid(), [](double x) { return -softplus(-x); }, 1);
  check("selu", scalar::Selu(), selu, 1);
  check(
      "elu", With<scalar::Elu>{1}, [](double x) { return x > 0 ? x : std::expm1(x); }, 1);
  check("tanhshrink", scalar::TanhShrink(), tanhshrink, 1);
}

BOOST_AUTO_TEST_CASE(within_two_units) {
  check(
      "rsqrt", scalar::Rsqrt(), [](double x) { return 1 / std::sqrt(x); }, 2);
  check(
      "lgamma", scalar::Lgamma(), [](double x) { return std::lgamma(x); }, 2);
  check(
      "xlogy of a and 0.7", With<scalar::XLogY>{0.7f},
      [](double x) { return x == 0 ? 0 : x * std::log(double{0.7f}); }, 2);
  check(
      "xlogy of 0.7 and b", Of<scalar::XLogY>{0.7f}, [](double x) { return double{0.7f} * std::log(x); }, 2);
  check(
      "softsign", scalar::SoftSign(),
      [](double x) { return std::isinf(x) ? std::nan("") : x / (1 + std::abs(x)); }, 2);
}

/// Beside its zero, where terms cancel, and which no float hits.
BOOST_AUTO_TEST_CASE(slope_of_gelu) {
  for (float x = -12; x < 6; x += 0.00013f) {
    const double exact = gelu_slope(x), got = scalar::GeluGradient()(1.0f, x);
    BOOST_TEST(std::abs(got - exact) <= 0x1p-23 * std::abs(exact) + 3e-9 * std::exp(-x * x / 2), "at " << x);
  }
}

/// The inverse is checked by what it inverts.
BOOST_AUTO_TEST_CASE(inverse_of_erf) {
  for (double y = 1e-30; y < 0.99999; y = y < 0.1 ? y * 1.7 : y + 0.00137)
    for (const double sign : {-1.0, 1.0}) {
      const double x = scalar::Erfinv()(sign * y);
      BOOST_TEST(std::abs(std::erf(x) - sign * y) <= 4e-16 * y);
      const float rounded = static_cast<float>(sign * y);
      BOOST_TEST(ulps(scalar::Erfinv()(rounded), scalar::Erfinv()(static_cast<double>(rounded))) <= 1);
    }
  for (double rest = 1e-3; rest > 1e-15; rest *= 0.37) {
    const double y = 1 - rest;
    BOOST_TEST(std::abs(std::erfc(scalar::Erfinv()(y)) / (1 - y) - 1) <= 1e-13);
  }
}

/// ψ(x + 1) = ψ(x) + 1 / x, and its derivatives; some values are known.
BOOST_AUTO_TEST_CASE(derivatives_of_the_gamma_function) {
  constexpr double pi = std::numbers::pi, zeta3 = 1.2020569031595942854;
  const auto near = [](double a, double b, double terms = 1) {
    return std::abs(a - b) <= 2e-14 * (1 + std::abs(b) + terms);
  };
  BOOST_TEST(near(scalar::Digamma()(1.0), -std::numbers::egamma));
  BOOST_TEST(near(scalar::Digamma()(0.5), -std::numbers::egamma - 2 * std::numbers::ln2));
  BOOST_TEST(near(scalar::Polygamma()(1.0, 1.0), pi * pi / 6));
  BOOST_TEST(near(scalar::Polygamma()(1.0, 0.5), pi * pi / 2));
  BOOST_TEST(near(scalar::Polygamma()(2.0, 1.0), -2 * zeta3));
  BOOST_TEST(near(scalar::Polygamma()(2.0, 0.5), -14 * zeta3));
  BOOST_TEST(near(scalar::Polygamma()(3.0, 1.0), std::pow(pi, 4) / 15));
  for (const double x : {-7.3, -2.5, -0.9, -0.1, 0.1, 0.7, 3.0, 11.5, 40.0, 1e6}) {
    BOOST_TEST(near(scalar::Digamma()(x + 1), scalar::Digamma()(x) + 1 / x));
    BOOST_TEST(near(scalar::Polygamma()(1.0, x + 1), scalar::Polygamma()(1.0, x) - 1 / (x * x)));
    const double cubed = x * x * x;
    BOOST_TEST(
        near(scalar::Polygamma()(2.0, x + 1), scalar::Polygamma()(2.0, x) + 2 / cubed, 2 / std::abs(cubed)));
  }
}

BOOST_AUTO_TEST_SUITE_END()
