// Functors of pointwise ops: special functions. They are computed in double, also for floats, since their
// zeros lie where numbers of their size cancel. What scalar.h says of its text holds here, too.
#pragma once

#ifndef __CUDACC_RTC__
#include <math.h>  // lgamma_r
#endif

#ifndef __CUDACC_RTC__
#include "espalier/core/scalar_functions.h"
#include "espalier/core/scalar_gamma.h"
#endif

namespace espalier::scalar {

namespace detail {

inline constexpr double pi = 3.14159265358979323846;
inline constexpr double infinity = __builtin_bit_cast(double, 0x7ff0000000000000ull);
inline constexpr double not_a_number = __builtin_bit_cast(double, 0x7ff8000000000000ull);

#ifdef __CUDA_ARCH__
ESPALIER_HD double log_gamma(double x) { return ::lgamma(x); }
#else
/// lgamma writes the sign to memory that all threads share.
ESPALIER_HD double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}
#endif

/// ψ(x), by recurrence to where its asymptotic series holds, and by reflection below 0. Abramowitz and
/// Stegun, Handbook of mathematical functions, 6.3.5, 6.3.7 and 6.3.18. At 0 it is infinite, NaN at negative
/// integers.
ESPALIER_HD double digamma(double x) {
  if (x == 0.0) return copysign(infinity, -x);
  double result = 0;
  if (x < 0.0) {
    const double fraction = x - trunc(x);
    if (!(fraction != 0.0)) return not_a_number;
    result = -pi / tan(pi * fraction);
    x = 1.0 - x;
  }
  for (; x < 10.0; x += 1.0) result -= 1.0 / x;
  const double z = 1.0 / (x * x);
  const double series =
      z *
      (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * 691.0 / 32760)))));
  return result + (log(x) - 0.5 / x - series);
}

/// Σ (x + k)^-s over k >= 0, for x > 0 and s > 1. The formula of Euler and Maclaurin, from where its terms
/// fall fast.
ESPALIER_HD double hurwitz_zeta(double s, double x) {
  double sum = 0;
  for (; x < 12.0; x += 1.0) sum += pow(x, -s);
  const double power = pow(x, -s), z = 1.0 / (x * x);
  // B_2j / (2j)!
  constexpr double factors[] = {1.0 / 12,
                                -1.0 / 720,
                                1.0 / 30240,
                                -1.0 / 1209600,
                                1.0 / 47900160,
                                -5.2841901386874932e-10,
                                1.3382536530684679e-11};
  double term = s * power / x, series = 0;
  for (int j = 0; j < 7; ++j) {
    series += factors[j] * term;
    term *= (s + 2 * j + 1) * (s + 2 * j + 2) * z;
  }
  return sum + (power * x / (s - 1.0) + 0.5 * power + series);
}

/// The derivative of ψ of order n >= 1: (-1)^(n + 1) n! Σ (x + k)^-(n + 1). Below 0 by reflection, for which
/// n must be 1 or 2; higher ones are NaN there. At poles it is the limit from the right. Handbook, 6.4.7
/// and 6.4.10.
ESPALIER_HD double polygamma(double n, double x) {
  double factorial = 1;
  for (double k = 2; k <= n && factorial < infinity; k += 1) factorial *= k;
  const bool odd = fmod(n, 2.0) == 1.0;
  const double factor = odd ? factorial : -factorial;
  if (x != x) return x;
  if (x > 0.0) return x > 1e300 ? 0.0 * factor : factor * hurwitz_zeta(n + 1.0, x);
  const double fraction = x - trunc(x);
  if (!(fraction != 0.0)) return odd ? infinity : -infinity;
  if (n > 2.0) return not_a_number;
  const double sine = sin(pi * fraction), square = pi * pi / (sine * sine);
  const double reflected = factor * hurwitz_zeta(n + 1.0, 1.0 - x);
  return odd ? square - reflected : reflected - 2.0 * pi * square * cos(pi * fraction) / sine;
}

/// The x with erf(x) = y. A start by Giles, Approximating the erfinv function, 2012, and Halley's steps,
/// which solve erfc(x) = 1 - y where y is near 1, since that has all its digits there.
ESPALIER_HD double erfinv(double y) {
  const double a = fabs(y), below = 1.0 - a;
  if (!(a < 1.0)) return a == 1.0 ? copysign(infinity, y) : not_a_number;
  double w = -log(below * (1.0 + a)), start = 0;
  if (w < 5.0) {
    w -= 2.5;
    constexpr double c[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                            -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
    for (const double coefficient : c) start = start * w + coefficient;
  } else {
    w = sqrt(w) - 3.0;
    constexpr double c[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                            -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
    for (const double coefficient : c) start = start * w + coefficient;
  }
  const int steps = below < 1e-3 ? 8 : 3;  // The start was fitted for floats.
  double x = start * a;
  for (int i = 0; i < steps; ++i) {
    const double excess = a < 0.5 ? erf(x) - a : below - erfc(x);
    const double step = excess * 0.88622692545275801365 * exp(x * x);
    x -= step / (1.0 + x * step);
  }
  return copysign(x, y);
}

/// sin(πx) / (πx).
template <class T>
ESPALIER_HD T sinc(T x) {
  const T angle = T(pi) * x;
  return x == T(0) ? T(1) : sin(angle) / angle;
}

// Of floats.
#ifdef __CUDA_ARCH__
ESPALIER_HD float erfinv(float y) { return static_cast<float>(erfinv(static_cast<double>(y))); }
ESPALIER_HD float log_gamma(float x) { return static_cast<float>(log_gamma(static_cast<double>(x))); }
ESPALIER_HD float digamma(float x) { return static_cast<float>(digamma(static_cast<double>(x))); }
ESPALIER_HD float polygamma(float n, float x) {
  return static_cast<float>(polygamma(static_cast<double>(n), static_cast<double>(x)));
}
#else
ESPALIER_HD bool is_positive(float x) { return x > 0.0f && x < math::Format<float>::infinity; }
ESPALIER_HD float erfinv(float y) { return math::erfinv(y); }
ESPALIER_HD float log_gamma(float x) {
  if (is_positive(x)) return math::lgamma_of_positive(x);
  return static_cast<float>(log_gamma(static_cast<double>(x)));
}
/// Quarter turns are 2 x, without rounding. Floats of 2^24 and more are whole.
ESPALIER_HD float sinc(float x) {
  using F = math::Format<double>;
  const double wide = x, turns = fabs(x) < 0x1p24f ? wide + wide : wide - wide;
  const double shifted = turns + F::round_magic;
  const auto [sine, cosine] = math::sine_cosine_kernel(turns - (shifted - F::round_magic));
  const math::Bits<double> quadrant = math::bits_of(shifted);
  const double value = (quadrant & 1) != 0 ? cosine : sine;
  const double turned = math::from_bits<double>(math::bits_of(value) ^ (quadrant >> 1) << 63);
  return x == 0.0f ? 1.0f : static_cast<float>(turned / (pi * wide));
}
ESPALIER_HD float digamma(float x) {
  if (is_positive(x)) return math::digamma_of_positive(x);
  return static_cast<float>(digamma(static_cast<double>(x)));
}
/// The orders that are fitted are those of the gradients of lgamma.
ESPALIER_HD bool is_fitted(float n, float x) { return ((n == 1.0f) | (n == 2.0f)) & is_positive(x); }
ESPALIER_HD float fitted_polygamma(float n, float x) {
  const float first = math::trigamma_of_positive(x), second = math::tetragamma_of_positive(x);
  return n == 1.0f ? first : second;
}
ESPALIER_HD float polygamma(float n, float x) {
  if (is_fitted(n, x)) return fitted_polygamma(n, x);
  return static_cast<float>(polygamma(static_cast<double>(n), static_cast<double>(x)));
}
#endif

}  // namespace detail

/// The logarithm of the absolute value of the gamma function.
struct Lgamma : Costly {
#ifndef __CUDA_ARCH__
  static bool within(float x) { return detail::is_positive(x); }
  static float bounded(float x) { return math::lgamma_of_positive(x); }
#endif
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::log_gamma(x);
  }
};
struct Digamma : Costly {
#ifndef __CUDA_ARCH__
  static bool within(float x) { return detail::is_positive(x); }
  static float bounded(float x) { return math::digamma_of_positive(x); }
#endif
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::digamma(x);
  }
};
struct Polygamma : Costly {
#ifndef __CUDA_ARCH__
  static bool within(float order, float x) { return detail::is_fitted(order, x); }
  static float bounded(float order, float x) { return detail::fitted_polygamma(order, x); }
#endif
  template <class T>
  ESPALIER_HD T operator()(T order, T x) const {
    return detail::polygamma(order, x);
  }
};
struct Erfinv : Costly {
  template <class T>
  ESPALIER_HD T operator()(T y) const {
    return detail::erfinv(y);
  }
};
struct Sinc : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::sinc(x);
  }
};
/// x log(y), and 0 where x is 0, unless y is NaN.
struct XLogY : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x, T y) const {
    return x == T(0) && y == y ? T(0) : x * detail::log(y);
  }
};

using SpecialFunctions = Functors<Lgamma, Digamma, Erfinv>;

}  // namespace espalier::scalar
