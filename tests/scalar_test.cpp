#include <boost/test/unit_test.hpp>

// Tests are compiled with little optimization; these loops must be the vector code that the library runs.
#pragma GCC optimize("O3", "no-math-errno", "no-trapping-math")

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/error.h"
#include "espalier/core/scalar.h"
#include "espalier/core/scalar_activations.h"
#include "scalar_loops.h"

namespace {

using namespace espalier;

using namespace espalier::testing;

/// Numbers of every size and sign, and dense ones where functions bend.
template <class T>
std::vector<T> sweep() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> result;
  for (int exponent = Limits::min_exponent - Limits::digits; exponent < Limits::max_exponent; ++exponent)
    for (const double m : {0.5, 0.5625, 0.6180339887, 0.70710678, 0.7071068, 0.875, 0.99999})
      for (const int sign : {-1, 1})
        result.push_back(static_cast<T>(sign * std::ldexp(static_cast<T>(m), exponent)));
  for (const double range : {0.01, 1.0, 10.0, 110.0, 760.0})
    for (int i = -6000; i <= 6000; ++i) result.push_back(static_cast<T>(i * 1.0000123 * range / 6000));
  for (int i = -6000; i <= 6000; ++i) result.push_back(static_cast<T>(1 + i * 0.9e-4));
  for (const T x : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), Limits::denorm_min(),
                    Limits::min(), Limits::max(), Limits::lowest(), T(0), -T(0), T(-1)})
    result.push_back(x);
  return result;
}

template <class T, class F, class Exact>
void check_accuracy(const char* name, F f, Exact exact, double bound) {
  const std::vector<T> x = sweep<T>();
  std::vector<long double> expected;
  for (const T v : x) expected.push_back(exact(static_cast<long double>(v)));
  at_every_level([&] {
    const std::vector<T> y = apply<T>(f, x);
    size_t worst = 0;
    for (size_t i = 0; i < x.size(); ++i)
      if (ulps(y[i], expected[i]) > ulps(y[worst], expected[worst])) worst = i;
    BOOST_TEST_CONTEXT(name << " of " << x[worst] << " is " << y[worst])
    BOOST_TEST(ulps(y[worst], expected[worst]) <= bound);
  });
}

long double exact_sigmoid(long double x) {
  const long double e = std::exp(-std::fabs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

template <class T>
void check_all_accuracies(double bound, double loose_bound) {
  check_accuracy<T>("exp", scalar::Exp(), expl, bound);
  check_accuracy<T>("log", scalar::Log(), logl, bound);
  check_accuracy<T>("log1p", scalar::Log1p(), log1pl, bound);
  check_accuracy<T>("tanh", scalar::Tanh(), tanhl, loose_bound);
  check_accuracy<T>("sigmoid", scalar::Sigmoid(), exact_sigmoid, loose_bound);
  check_accuracy<T>("erf", scalar::Erf(), erfl, bound);
  check_accuracy<T>("sqrt", scalar::Sqrt(), sqrtl, 0.5);
  check_accuracy<T>("floor", scalar::Floor(), floorl, 0);
  check_accuracy<T>("sin", scalar::Sin(), sinl, 1);
  check_accuracy<T>("cos", scalar::Cos(), cosl, 1);
}

template <class T>
void check_special_values() {
  using Limits = std::numeric_limits<T>;
  const T inf = Limits::infinity();
  const T nan = Limits::quiet_NaN();
  BOOST_TEST(value(scalar::Exp(), -inf) == 0);
  BOOST_TEST(value(scalar::Exp(), T(0)) == 1);
  BOOST_TEST(value(scalar::Log(), T(1)) == 0);
  BOOST_TEST(value(scalar::Log(), -T(0)) == -inf);
  BOOST_TEST(value(scalar::Tanh(), inf) == 1);
  BOOST_TEST(value(scalar::Tanh(), T(-50)) == -1);
  BOOST_TEST(std::signbit(value(scalar::Tanh(), -T(0))));
  BOOST_TEST(value(scalar::Tanh(), Limits::denorm_min()) == Limits::denorm_min());
  BOOST_TEST(value(scalar::Erf(), inf) == 1);
  BOOST_TEST(value(scalar::Erf(), T(-6)) == -1);
  BOOST_TEST(std::signbit(value(scalar::Erf(), -T(0))));
  BOOST_TEST(std::isnan(value(scalar::Erf(), nan)));
  BOOST_TEST(value(scalar::Gelu(), T(30)) == T(30));
  BOOST_TEST(std::fabs(value(scalar::Gelu(), T(-30))) < T(1e-30));
  BOOST_TEST(value(scalar::Sigmoid(), -inf) == 0);
  BOOST_TEST(value(scalar::Sigmoid(), T(0)) == T(0.5));
  BOOST_TEST(value(scalar::Log1p(), -T(1)) == -inf);
  BOOST_TEST(std::isnan(value(scalar::Log1p(), T(-1.5))));
  BOOST_TEST(value(scalar::Relu(), -inf) == 0);
  BOOST_TEST(value(scalar::Sign(), T(-3)) == -1);
  BOOST_TEST(value(scalar::Sign(), T(0)) == 0);
  BOOST_TEST(!std::signbit(value(scalar::Abs(), -T(0))));
  BOOST_TEST(std::signbit(value(scalar::Negative(), T(0))));
  BOOST_TEST(std::isnan(value(scalar::Exp(), nan)));
  BOOST_TEST(std::isnan(value(scalar::Tanh(), nan)));
  BOOST_TEST(std::isnan(value(scalar::Relu(), nan)));
  BOOST_TEST(std::isnan(value(scalar::Sign(), nan)));
  const std::vector<T> a(67, T(2)), b(67, nan);
  BOOST_TEST(std::isnan(apply<T>(scalar::Maximum(), a, b)[66]));
  BOOST_TEST(std::isnan(apply<T>(scalar::Maximum(), b, a)[66]));
  BOOST_TEST(std::isnan(apply<T>(scalar::Minimum(), a, b)[66]));
  BOOST_TEST(std::isnan(apply<T>(scalar::Minimum(), b, a)[66]));
  BOOST_TEST(apply<T>(scalar::Maximum(), a, std::vector<T>(67, T(3)))[66] == 3);
  BOOST_TEST(!scalar::Equal()(nan, nan));
  BOOST_TEST(scalar::NotEqual()(nan, nan));
}

template <class T>
void check_integers() {
  constexpr T least = std::numeric_limits<T>::min();
  constexpr T most = std::numeric_limits<T>::max();
  BOOST_TEST(scalar::Add()(most, T(1)) == least);
  BOOST_TEST(scalar::Subtract()(least, T(1)) == most);
  BOOST_TEST(scalar::Multiply()(most, T(2)) == T(-2));
  BOOST_TEST(scalar::Square()(most) == T(1));
  BOOST_TEST(scalar::Negative()(least) == least);
  BOOST_TEST(scalar::Abs()(least) == least);
  BOOST_TEST(scalar::Abs()(T(-7)) == T(7));
  BOOST_TEST(scalar::Divide()(T(-7), T(2)) == T(-3));
  BOOST_TEST(scalar::Divide()(T(7), T(0)) == T(0));
  BOOST_TEST(scalar::Divide()(least, T(-1)) == least);
  BOOST_TEST(scalar::Power()(T(-3), T(5)) == T(-243));
  BOOST_TEST(scalar::Power()(T(0), T(0)) == T(1));
  BOOST_TEST(scalar::Power()(T(2), T(8 * sizeof(T) - 1)) == least);
  BOOST_TEST(scalar::Power()(T(2), T(8 * sizeof(T))) == T(0));
  BOOST_TEST(scalar::Power()(T(-1), T(-3)) == T(-1));
  BOOST_TEST(scalar::Power()(T(5), T(-1)) == T(0));
  BOOST_TEST(scalar::Floor()(T(-5)) == T(-5));
  BOOST_TEST(scalar::Sign()(least) == T(-1));
}

template <class To, class From>
void check_cast_to_integer() {
  constexpr To least = std::numeric_limits<To>::min();
  constexpr To most = std::numeric_limits<To>::max();
  const From limit = std::ldexp(From(1), 8 * sizeof(To) - 1);
  const From inf = std::numeric_limits<From>::infinity();
  const From below = std::nextafter(limit, From(0));
  const struct {
    From from;
    To to;
  } rows[] = {{From(2.9), 2}, {From(-2.9), -2}, {-From(0), 0},      {below, static_cast<To>(below)},
              {limit, most},  {-limit, least},  {From(1e30), most}, {From(-1e30), least},
              {inf, most},    {-inf, least},    {std::nanf(""), 0}};
  for (const auto& [from, to] : rows)
    BOOST_TEST(apply<To>(scalar::Cast<To>(), std::vector<From>(67, from))[35] == to, "the cast of " << from);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(scalar_functors)

BOOST_AUTO_TEST_CASE(float_functions_are_accurate) { check_all_accuracies<float>(1, 1); }

BOOST_AUTO_TEST_CASE(double_functions_are_accurate) { check_all_accuracies<double>(2, 3); }

BOOST_AUTO_TEST_CASE(special_values) {
  at_every_level([] {
    check_special_values<float>();
    check_special_values<double>();
  });
}

BOOST_AUTO_TEST_CASE(tanh_erf_and_sigmoid_stay_in_range) {
  at_every_level([] {
    for (const float y : apply<float>(scalar::Tanh(), sweep<float>())) BOOST_REQUIRE(!(std::fabs(y) > 1));
    for (const float y : apply<float>(scalar::Erf(), sweep<float>())) BOOST_REQUIRE(!(std::fabs(y) > 1));
    for (const float y : apply<float>(scalar::Sigmoid(), sweep<float>())) BOOST_REQUIRE(!(y < 0 || y > 1));
  });
}

BOOST_AUTO_TEST_CASE(integers_wrap_around) {
  check_integers<int32_t>();
  check_integers<int64_t>();
}

BOOST_AUTO_TEST_CASE(casts_to_integers_saturate) {
  at_every_level([] {
    check_cast_to_integer<int32_t, float>();
    check_cast_to_integer<int32_t, double>();
    check_cast_to_integer<int64_t, float>();
    check_cast_to_integer<int64_t, double>();
  });
}

BOOST_AUTO_TEST_CASE(casts_to_and_from_bool) {
  BOOST_TEST(scalar::Cast<bool>()(0.25f));
  BOOST_TEST(scalar::Cast<bool>()(std::nan("")));
  BOOST_TEST(!scalar::Cast<bool>()(-0.0));
  BOOST_TEST(scalar::Cast<bool>()(int64_t{1} << 40));
  BOOST_TEST(scalar::Cast<double>()(true) == 1);
  BOOST_TEST(scalar::Cast<int32_t>()(int64_t{1} << 32) == 0);
  BOOST_TEST(scalar::Cast<float>()(int64_t{1} << 32) == 0x1p32f);
}

BOOST_AUTO_TEST_CASE(comparisons_and_logic) {
  BOOST_TEST(scalar::Less()(1, 2));
  BOOST_TEST(!scalar::Less()(2, 2));
  BOOST_TEST(scalar::LessEqual()(2, 2));
  BOOST_TEST(scalar::Greater()(3.0f, 2.0f));
  BOOST_TEST(scalar::GreaterEqual()(2.0, 2.0));
  BOOST_TEST(!scalar::Greater()(std::nan(""), 2.0));
  for (const bool a : {false, true}) {
    BOOST_TEST(scalar::LogicalNot()(a) == !a);
    for (const bool b : {false, true}) {
      BOOST_TEST(scalar::LogicalAnd()(a, b) == (a && b));
      BOOST_TEST(scalar::LogicalOr()(a, b) == (a || b));
      BOOST_TEST(scalar::LogicalAnd()(a ? 0.5 : 0.0, b ? 2.0 : -0.0) == (a && b));
    }
  }
  BOOST_TEST(scalar::Select()(true, 1, 2) == 1);
  BOOST_TEST(scalar::Select()(false, 1, 2) == 2);
}

/// As in the library: the bools of one loop are inputs of the next.
void loop_over_bools(int n, const float* a, const float* b, bool* less, bool* both, float* chosen) {
  vectorized([=]() __attribute__((always_inline)) {
    for (int i = 0; i < n; ++i) less[i] = scalar::Less()(a[i], b[i]);
    for (int i = 0; i < n; ++i) both[i] = scalar::LogicalAnd()(less[i], scalar::Cast<bool>()(a[i]));
    for (int i = 0; i < n; ++i) chosen[i] = scalar::Select()(both[i], a[i], scalar::Cast<float>()(less[i]));
  });
}

BOOST_AUTO_TEST_CASE(loops_over_bools) {
  constexpr int n = 67;
  float a[n], b[n], chosen[n];
  bool less[n], both[n];
  for (int i = 0; i < n; ++i) {
    a[i] = static_cast<float>(i % 7);
    b[i] = static_cast<float>(i % 5);
  }
  at_every_level([&] {
    loop_over_bools(n, a, b, less, both, chosen);
    for (int i = 0; i < n; ++i) {
      const bool is_less = a[i] < b[i];
      BOOST_TEST(less[i] == is_less);
      BOOST_TEST(both[i] == (is_less && a[i] != 0));
      BOOST_TEST(chosen[i] == (both[i] ? a[i] : static_cast<float>(is_less)));
    }
  });
}

BOOST_AUTO_TEST_CASE(vector_level_can_be_chosen) {
  const RestoreLevel restore;
  const VectorLevel widest = set_vector_level(VectorLevel::avx512);
  BOOST_TEST((vector_level() == widest));
  BOOST_TEST((set_vector_level(VectorLevel::baseline) == VectorLevel::baseline));
  BOOST_TEST((vector_level() == VectorLevel::baseline));

  const char* variable = "ESPALIER_VECTOR_LEVEL";
  const char* before = std::getenv(variable);
  const std::string kept = before ? before : "";
  setenv(variable, "baseline", 1);
  BOOST_TEST((detail::find_vector_level() == VectorLevel::baseline));
  setenv(variable, "avx512", 1);
  BOOST_TEST((detail::find_vector_level() == widest));
  setenv(variable, "fast", 1);
  BOOST_CHECK_THROW(detail::find_vector_level(), Error);
  before ? setenv(variable, kept.c_str(), 1) : unsetenv(variable);
}

BOOST_AUTO_TEST_SUITE_END()
