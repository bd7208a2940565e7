// Trigonometric functions of floats and their inverses, and the inverse of erf, on the CPU: computed in
// double, as those of scalar_wide.h. The fits are of Chebyshev's kind, with errors below 2^-31.
#pragma once
#include "espalier/core/scalar_wide.h"

namespace espalier::math {

/// 2^k · 2 / π modulo 4 for k from 0 to 104, in parts of 29, 29 and 53 bits, so that the products of the
/// first two with floats are exact. NaN for k = 105, which infinities have. Payne and Hanek, Radian reduction
/// for trigonometric functions, 1983.
struct QuarterTurns {
  double high[106], middle[106], low[106];
};

constexpr QuarterTurns quarter_turns() {
  // Two zero bits, and the first bits of 2 / π.
  constexpr unsigned long long bits[] = {0x28be60db9391054aull, 0x7f09d5f47d4d3770ull, 0x36d8a5664f10e410ull,
                                         0x7f9458eaf7aef158ull, 0x6dc91b8e909374b8ull};
  QuarterTurns table{};
  for (int k = 0; k < 105; ++k) {
    const int word = k / 64, shift = k % 64;
    const auto at = [&](int i) {
      return shift == 0 ? bits[word + i] : bits[word + i] << shift | bits[word + i + 1] >> (64 - shift);
    };
    const unsigned long long first = at(0), second = at(1);
    table.high[k] = static_cast<double>(first >> 35) * 0x1p-27;
    table.middle[k] = static_cast<double>(first >> 6 & 0x1fffffff) * 0x1p-56;
    table.low[k] = static_cast<double>(first & 63) * 0x1p-62 + static_cast<double>(second) * 0x1p-126;
  }
  table.high[105] = Format<double>::nan;
  return table;
}
inline constexpr QuarterTurns quarter_turns_of_powers = quarter_turns();

/// An angle as quarter turns: a whole number of them, in the low bits, and the rest, at most 1/2 in size.
struct Reduced {
  Bits<double> quadrant;
  double rest;
};

/// m 2^k, as row k of the table has it. m is an integer unless k is 0: then the multiples of 4 that the table
/// leaves out are whole turns.
[[gnu::always_inline]] inline Reduced reduce_angle(double m, int k) {
  using F = Format<double>;
  const double high = m * quarter_turns_of_powers.high[k], middle = m * quarter_turns_of_powers.middle[k];
  const double shifted = (high + middle) + F::round_magic;
  const double rest = (high - (shifted - F::round_magic)) + middle;
  return {bits_of(shifted), rest + m * quarter_turns_of_powers.low[k]};
}
/// Below this size one row serves all, and loops vectorize.
inline constexpr float moderate_angle = 0x1p23f;
[[gnu::always_inline]] inline Reduced reduce_angle(float x) {
  using F = Format<double>;
  if (absolute(x) < moderate_angle) return reduce_angle(static_cast<double>(x), 0);
  const int k = static_cast<int>(bits_of(absolute(x)) >> Format<float>::mantissa_bits) - 150;
  const Bits<double> scale = F::exponent_bias - static_cast<Bits<double>>(k);
  return reduce_angle(static_cast<double>(x) * from_bits<double>(scale << F::mantissa_bits), k);
}

struct Sine {
  [[gnu::always_inline]] static float of(Reduced angle) {
    const auto [sine, cosine] = sine_cosine_kernel(angle.rest);
    const double value = (angle.quadrant & 1) != 0 ? cosine : sine;
    return static_cast<float>(from_bits<double>(bits_of(value) ^ (angle.quadrant >> 1) << 63));
  }
};
/// The sine, a quarter turn later.
struct Cosine {
  [[gnu::always_inline]] static float of(Reduced angle) { return Sine::of({angle.quadrant + 1, angle.rest}); }
};
struct Tangent {
  [[gnu::always_inline]] static float of(Reduced angle) {
    const auto [sine, cosine] = sine_cosine_kernel(angle.rest);
    const bool odd = (angle.quadrant & 1) != 0;
    return static_cast<float>((odd ? -cosine : sine) / (odd ? sine : cosine));
  }
};
/// F of angles of any size.
template <class F>
[[gnu::always_inline]] inline float of_angle(float x) {
  return F::of(reduce_angle(x));
}
/// The same for |x| < moderate_angle.
template <class F>
[[gnu::always_inline]] inline float of_moderate_angle(float x) {
  return F::of(reduce_angle(static_cast<double>(x), 0));
}

inline constexpr double half_pi = 1.57079632679489661923, whole_pi = 3.14159265358979323846;

/// atan(t) for 0 <= t <= 1.
[[gnu::always_inline]] inline double atan_kernel(double t) {
  return t * polynomial(t * t, 0.99999999998873813, -0.33333332951657216, 0.19999978336217084,
                        -0.1428522560816021, 0.11105306732424464, -0.090491790937205773, 0.074952623780996963,
                        -0.060221963879374327, 0.043646589442816673, -0.026005995977608619,
                        0.011427633277375594, -0.0031954252407363946, 0.00041922786011272895);
}
[[gnu::always_inline]] inline float atan(float x) {
  const double a = absolute(static_cast<double>(x));
  const double inner = atan_kernel(a > 1.0 ? 1.0 / a : a);
  return with_sign(static_cast<float>(a > 1.0 ? half_pi - inner : inner), x);
}
[[gnu::always_inline]] inline float atan2(float y, float x) {
  using F = Format<double>;
  const double a = absolute(static_cast<double>(x)), b = absolute(static_cast<double>(y));
  const double less = a < b ? a : b, more = a < b ? b : a;
  const double ratio = less == more ? 1.0 : less / more;  // infinities are as large as each other
  const double inner = atan_kernel(more == 0.0 ? 0.0 : ratio);
  const double steep = a < b ? half_pi - inner : inner;
  const double angle = with_sign(1.0f, x) < 0.0f ? whole_pi - steep : steep;
  return with_sign(static_cast<float>(a == a && b == b ? angle : F::nan), y);
}

/// asin(s) for 0 <= s <= 1/2, z = s^2.
[[gnu::always_inline]] inline double asin_kernel(double s, double z) {
  return s * polynomial(z, 1.000000000000825, 0.16666666613278706, 0.075000056558218821, 0.04464056469220037,
                        0.030428119019079429, 0.021855742599843482, 0.02068132717169167,
                        0.0019156113431105126, 0.032957594700848807);
}
/// Above 1/2, asin(a) = π / 2 - 2 asin(√((1 - a) / 2)).
[[gnu::always_inline]] inline float asin(float x) {
  const double a = absolute(static_cast<double>(x));
  const double z = a > 0.5 ? 0.5 - 0.5 * a : a * a;
  const double inner = asin_kernel(a > 0.5 ? __builtin_sqrt(z) : a, z);
  return with_sign(static_cast<float>(a > 0.5 ? half_pi - 2.0 * inner : inner), x);
}
[[gnu::always_inline]] inline float acos(float x) {
  const double a = absolute(static_cast<double>(x));
  const double z = a > 0.5 ? 0.5 - 0.5 * a : a * a;
  const double inner = asin_kernel(a > 0.5 ? __builtin_sqrt(z) : a, z);
  const double steep = x < 0.0f ? whole_pi - 2.0 * inner : 2.0 * inner;
  return static_cast<float>(a > 0.5 ? steep : half_pi - with_sign(inner, static_cast<double>(x)));
}

/// The x with erf(x) = y: a polynomial of w = -log(1 - y^2), or of √w where that is large, times y. Giles,
/// Approximating the erfinv function, 2012.
[[gnu::always_inline]] inline float erfinv(float y) {
  const double a = absolute(static_cast<double>(y));
  const double w = -Wide::log((1.0 - a) * (1.0 + a)), s = __builtin_sqrt(w);
  const double middle = polynomial(w, 0.88622692539441536, 0.23201367073290994, 0.011549292029591419,
                                   -0.0023348672194137861, -0.00012861636332108029, 4.7449678941651838e-5,
                                   1.2279576727819037e-6, -5.0814097963149505e-7, -2.5760211212962132e-7,
                                   8.8147055676801752e-8, -1.1685309810037704e-8, 7.0730165366558728e-10,
                                   -3.660716349173762e-12, -1.8346252164311612e-12, 7.1311128216057828e-14);
  const double tail = polynomial(s, -8.1014208237308193, 30.285908563513674, -45.26348698372311,
                                 40.140202154698161, -23.093428845181034, 9.1345135249739706,
                                 -2.5485495460527861, 0.50326561544465832, -0.069090387339581421,
                                 0.0062900708365156491, -0.00034217405742559144, 8.4329261646890092e-6);
  const double finite = (w < 6.25 ? middle : tail) * a;
  return with_sign(static_cast<float>(a == 1.0 ? Format<double>::infinity : finite), y);
}

}  // namespace espalier::math
