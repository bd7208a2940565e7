// Functions of floats that are computed in double, on the CPU: what they add to the rounding of the result is
// below 0.15 units in its last place. They vectorize as those of scalar_math.h do, at twice the instructions
// for a step, but need fewer steps: no exponent of a float is too large or too small for a double.
#pragma once
#include "espalier/core/scalar_math.h"

namespace espalier::math {

/// exp(x) = (1 + p) scale. For |x| <= 200.
struct WideExp {
  double p, scale;
};

/// The tail's error is 2^-34 of exp(x).
[[gnu::always_inline]] inline WideExp split_wide_exp(double x) {
  using F = Format<double>;
  const double shifted = x * F::log2_e + F::round_magic;
  const double r = x - (shifted - F::round_magic) * 0.69314718055994530942;
  const double tail = polynomial(r, 0.50000000676822776, 0.16666665868934774, 0.041666294946813301,
                                 0.0083334970747270462, 0.0013944659655588925, 0.00019790341684612482);
  const Bits<double> n = bits_of(shifted) - bits_of(F::round_magic) + F::exponent_bias;
  return {(tail * r) * r + r, from_bits<double>(n << F::mantissa_bits)};
}

/// Elementary functions of doubles that are widened floats. Their errors are below those of rounding the
/// results to float.
struct Wide {
  /// Beyond where a double holds squares of the result, it is 0 or infinite.
  [[gnu::always_inline]] static double exp(double x) {
    const auto [p, scale] = split_wide_exp(x);
    const double bounded = x < -200.0 ? 0.0 : p * scale + scale;
    return x > 200.0 ? Format<double>::infinity : bounded;
  }
  [[gnu::always_inline]] static double expm1(double x) {
    const auto [p, scale] = split_wide_exp(x);
    const double bounded = x < -200.0 ? -1.0 : p * scale + (scale - 1.0);
    return with_sign(x > 200.0 ? Format<double>::infinity : bounded, x);
  }
  /// The fit is that of floats: see log_positive(float).
  [[gnu::always_inline]] static double log(double x) {
    using F = Format<double>;
    const auto [e, f] = split_log(x);
    const double z = f * f;
    const double p = polynomial(f, 0.3333333135, -0.2500082254, 0.2000122666, -0.1662335545, 0.1420175731,
                                -0.1316019446, 0.1276158541, -0.07634480298);
    const double finite = ((f * z) * p - 0.5 * z) + f + e * 0.69314718055994530942;
    const double positive = x < F::infinity ? finite : x;
    const double other = x == 0.0 ? -F::infinity : F::nan;
    return x > 0.0 ? positive : other;
  }
  /// What 1 + x loses to rounding counts where x is small, and there the slope of log is 1.
  [[gnu::always_inline]] static double log1p(double x) {
    const double u = 1.0 + x;
    const double lost = absolute(x) < 0.5 ? x - (u - 1.0) : 0.0;
    return with_sign(log(u) + lost, x);
  }
  /// log(1 + exp(-a)) for a >= 0. The fit is of log(1 + t) / t for 0 <= t <= 1, with an error of 2^-27.
  [[gnu::always_inline]] static double log1p_exp_minus(double a) {
    const auto [p, scale] = split_wide_exp(-a);
    const double t = a > 200.0 ? 0.0 : p * scale + scale;
    return t * polynomial(t, 0.99999999528722802, -0.49999902422805492, 0.33329962415788169,
                          -0.24954133641322393, 0.19675939169638705, -0.1530559230124362, 0.1060365441232431,
                          -0.056959529524910864, 0.019851459815484758, -0.0032440246082980067);
  }
  [[gnu::always_inline]] static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

  /// The share of the standard normal distribution that lies above `a`, divided by exp(-a^2 / 2), for
  /// 0 <= a <= 15. A fraction of polynomials with an error of 2^-27.
  [[gnu::always_inline]] static double normal_tail(double a) {
    const double n = polynomial(a, 0.50000000315052551, 0.43928279854840546, 0.1839686629415988,
                                0.04088096570668568, 0.0041532054424546832);
    const double d = polynomial(a, 1.0, 1.676450604126845, 1.2055463211996773, 0.47140744174307131,
                                0.10247950120362399, 0.010410430524348285);
    return n / d;
  }
};

[[gnu::always_inline]] inline float log1p(float x) { return static_cast<float>(Wide::log1p(x)); }

/// 1 / (1 + exp(-x)).
[[gnu::always_inline]] inline float sigmoid(float x) { return static_cast<float>(Wide::sigmoid(x)); }

/// tanh(x) = 2t / (1 + t^2) with t = tanh(x / 2) = n / q, a fraction of polynomials: 2nq / (q^2 + n^2). The
/// fit's error is 2^-27.
[[gnu::always_inline]] inline float tanh(float x) {
  const double a = absolute(static_cast<double>(x));
  const double z = a * a;
  const double n = a * polynomial(z, 0.8999999762, 0.02679242194, 0.0001027498947);
  const double q = polynomial(z, 1.7999999524, 0.2035847604, 0.002170972526, 2.209296554e-6);
  const double y = (n + n) * q / (q * q + n * n);
  return static_cast<float>(with_sign(a > 9.02 ? 1.0 : y, static_cast<double>(x)));  // There it rounds to 1.
}

/// The share of the standard normal distribution below x, and exp(-x^2 / 2).
struct NormalShare {
  double share, bell;
};
/// For |x| <= 15.
[[gnu::always_inline]] inline NormalShare normal_share(double x) {
  const double a = absolute(x);
  const auto [p, scale] = split_wide_exp(-0.5 * (a * a));
  const double bell = p * scale + scale;
  const double outside = bell * Wide::normal_tail(a);
  return {x < 0.0 ? outside : 1.0 - outside, bell};
}

/// x times the share of the standard normal distribution below it; below -15 that rounds to 0.
[[gnu::always_inline]] inline float gelu(float x) {
  const double wide = x;
  const double above = wide < -15.0 ? 0.0 : wide;
  const double share = normal_share(above > 15.0 ? 15.0 : above).share;
  return static_cast<float>(above * share);
}
[[gnu::always_inline]] inline float gelu_slope(float x) {
  const double wide = x;
  const double above = wide < -15.0 ? -15.0 : wide;
  const double inside = above > 15.0 ? 15.0 : above;
  const auto [share, bell] = normal_share(inside);
  const double slope = share + inside * (0.39894228040143267794 * bell);
  return static_cast<float>(wide < -15.0 ? 0.0 : slope);
}

/// 1 - erf(x).
[[gnu::always_inline]] inline float erfc(float x) {
  const double wide = x, a = absolute(wide);
  const double inside = a > 10.6 ? 10.6 : a;  // where 1 - erf rounds to 0
  const auto [p, scale] = split_wide_exp(-inside * inside);
  const double outside = 2.0 * (p * scale + scale) * Wide::normal_tail(inside * 1.41421356237309504880);
  return static_cast<float>(wide < 0.0 ? 2.0 - outside : outside);
}

}  // namespace espalier::math
