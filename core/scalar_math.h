// exp, log, erf and the sine and cosine of a turn, for float and double, and log1p, tanh and sigmoid of
// doubles, on the CPU; scalar_wide.h has those of floats.
// They have no branches, no calls and no conversions between floats and integers: so compilers vectorize
// plain loops over them for any instruction set, without -ffast-math. The file includes nothing.
//
// The methods are classic: Cody and Waite, "Software Manual for the Elementary Functions" (1980), as in
// Moshier's Cephes, and Tang, "Table-driven implementation of the logarithm function" (1990), as in Sun's
// fdlibm. All coefficients, in rising powers, are minimax fits made for this file.
#pragma once

namespace espalier::math {

template <class T>
struct Format;

template <>
struct Format<float> {
  using Bits = unsigned int;
  static constexpr int mantissa_bits = 23;
  static constexpr Bits exponent_bias = 127;
  static constexpr float infinity = __builtin_inff();
  static constexpr float nan = __builtin_nanf("");
  static constexpr float smallest_normal = 0x1p-126f;
  // Adding it rounds a number to an integer, which then stands in the low bits.
  static constexpr float round_magic = 0x1.8p23f;
  static constexpr float log2_e = 0x1.715476p0f;
  // ln 2 in two parts; the high one is short, so that its products with exponents are exact.
  static constexpr float ln2_high = 0x1.63p-1f;
  static constexpr float ln2_low = -0x1.bd0106p-13f;
  // Beyond these, exp is infinite or zero.
  static constexpr float exp_high = 89.0f;
  static constexpr float exp_low = -104.0f;
};

template <>
struct Format<double> {
  using Bits = unsigned long long;
  static constexpr int mantissa_bits = 52;
  static constexpr Bits exponent_bias = 1023;
  static constexpr double infinity = __builtin_inf();
  static constexpr double nan = __builtin_nan("");
  static constexpr double smallest_normal = 0x1p-1022;
  static constexpr double round_magic = 0x1.8p52;
  static constexpr double log2_e = 0x1.71547652b82fep0;
  static constexpr double ln2_high = 0x1.62e42feep-1;
  static constexpr double ln2_low = 0x1.a39ef35793c76p-33;
  static constexpr double exp_high = 710.0;
  static constexpr double exp_low = -746.0;
};

template <class T>
using Bits = typename Format<T>::Bits;

template <class T>
[[gnu::always_inline]] inline Bits<T> bits_of(T x) {
  return __builtin_bit_cast(Bits<T>, x);
}
template <class T>
[[gnu::always_inline]] inline T from_bits(Bits<T> bits) {
  return __builtin_bit_cast(T, bits);
}

template <class T>
[[gnu::always_inline]] inline T polynomial(T, T c) {
  return c;
}
/// c0 + c1 x + c2 x^2 + …, by Horner's rule.
template <class T, class... Rest>
[[gnu::always_inline]] inline T polynomial(T x, T c, Rest... rest) {
  return polynomial(x, rest...) * x + c;
}

[[gnu::always_inline]] inline float absolute(float x) { return __builtin_fabsf(x); }
[[gnu::always_inline]] inline double absolute(double x) { return __builtin_fabs(x); }
[[gnu::always_inline]] inline float with_sign(float x, float sign) { return __builtin_copysignf(x, sign); }
[[gnu::always_inline]] inline double with_sign(double x, double sign) { return __builtin_copysign(x, sign); }

/// (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2, with an error of 2^-28 (float) and 2^-57 (double) of exp(r).
[[gnu::always_inline]] inline float exp_tail(float r) {
  return polynomial(r, 0.4999999404f, 0.1666651964f, 0.04166840017f, 0.008368850686f, 0.001381431939f);
}
[[gnu::always_inline]] inline double exp_tail(double r) {
  return polynomial(r, 0.5000000000000011, 0.16666666666666408, 0.04166666666652811, 0.008333333333496963,
                    0.001388888894424842, 0.00019841269502665697, 2.4801492388729902e-05,
                    2.7557588483402215e-06, 2.7630523396803953e-07, 2.4999839762881647e-08);
}

/// exp(x) = y 2^n. `n` is unsigned, but may be negative in effect.
template <class T>
struct SplitExp {
  T y;
  Bits<T> n;
};

/// With r = x - n ln 2 at most ln(2) / 2 in size (Cody and Waite), y = exp(r).
template <class T>
[[gnu::always_inline]] inline SplitExp<T> split_exp(T x) {
  using F = Format<T>;
  const T shifted = x * F::log2_e + F::round_magic;
  const T n = shifted - F::round_magic;
  const T r = (x - n * F::ln2_high) - n * F::ln2_low;
  return {(exp_tail(r) * (r * r) + r) + T(1), bits_of(shifted) - bits_of(F::round_magic)};
}

/// y 2^n in two steps, since 2^n itself may be too large or too small for a T.
template <class T>
[[gnu::always_inline]] inline T joined(const SplitExp<T>& split) {
  using F = Format<T>;
  const Bits<T> exponent = split.n + 2 * F::exponent_bias;
  const Bits<T> half = exponent >> 1;
  return split.y * from_bits<T>(half << F::mantissa_bits) *
         from_bits<T>((exponent - half) << F::mantissa_bits);
}

template <class T>
[[gnu::always_inline]] inline T exp(T x) {
  using F = Format<T>;
  const T bounded = x < F::exp_low ? T(0) : joined(split_exp(x));
  return x > F::exp_high ? F::infinity : bounded;
}

/// 2^x = 2^n exp(r), where r = (x - n) ln 2 and x - n has no rounding error. Of integers it has none.
[[gnu::always_inline]] inline float exp2(float x) {
  using F = Format<float>;
  const float shifted = x + F::round_magic;
  const float r = (x - (shifted - F::round_magic)) * 0.69314718f;
  const float y = (exp_tail(r) * (r * r) + r) + 1.0f;
  const float bounded = x < -150.0f ? 0.0f : joined<float>({y, bits_of(shifted) - bits_of(F::round_magic)});
  return x >= 128.0f ? F::infinity : bounded;
}

/// log(x) = exponent * ln 2 + log(1 + f).
template <class T>
struct SplitLog {
  T exponent;
  T f;  // sqrt(1/2) <= 1 + f < sqrt(2)
};

/// For finite x > 0. The bits of sqrt(1/2) are taken off those of x, so that the exponent steps there.
template <class T>
[[gnu::always_inline]] inline SplitLog<T> split_log(T x) {
  using F = Format<T>;
  constexpr Bits<T> middle = Bits<T>(1) << (8 * sizeof(T) - 2);  // Keeps the difference positive.
  constexpr T up = T(1ULL << (F::mantissa_bits + 1));
  const bool subnormal = x < F::smallest_normal;
  const Bits<T> bits = bits_of(subnormal ? x * up : x);
  const Bits<T> moved = bits - bits_of(T(0.70710678118654752440)) + middle;
  const Bits<T> exponent = moved >> F::mantissa_bits;
  const T m = from_bits<T>(bits - (exponent << F::mantissa_bits) + middle);
  const T e =
      from_bits<T>(bits_of(F::round_magic) + exponent) - (F::round_magic + T(middle >> F::mantissa_bits));
  return {subnormal ? e - T(F::mantissa_bits + 1) : e, m - T(1)};
}

/// For finite x > 0. The fit is of (log(1 + f) - f + f^2 / 2) / f^3, with an error of 2^-27 of log(1 + f).
[[gnu::always_inline]] inline float log_positive(float x) {
  using F = Format<float>;
  const auto [e, f] = split_log(x);
  const float z = f * f;
  const float p = polynomial(f, 0.3333333135f, -0.2500082254f, 0.2000122666f, -0.1662335545f, 0.1420175731f,
                             -0.1316019446f, 0.1276158541f, -0.07634480298f);
  return ((f * z * p + e * F::ln2_low) - 0.5f * z) + f + e * F::ln2_high;
}
/// With s = f / (2 + f), log(1 + f) = 2 atanh(s) (Tang). The fit is of (2 atanh(s) - 2 s) / s^3, error 2^-59.
[[gnu::always_inline]] inline double log_positive(double x) {
  using F = Format<double>;
  const auto [e, f] = split_log(x);
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double tail =
      z * polynomial(z, 0.6666666666666735, 0.3999999999941109, 0.28571428743263844, 0.22222198475848562,
                     0.18183569747503336, 0.1531390304558821, 0.14797509694794994);
  const double square = 0.5 * f * f;
  return e * F::ln2_high - ((square - (s * (square + tail) + e * F::ln2_low)) - f);
}

template <class T>
[[gnu::always_inline]] inline T log(T x) {
  using F = Format<T>;
  const T finite = log_positive(x);
  const T positive = x < F::infinity ? finite : x;
  const T other = x == T(0) ? -F::infinity : F::nan;
  return x > T(0) ? positive : other;
}

/// log(1 + x), also for small x: what u = 1 + x loses to rounding is known, and its share is taken off. It
/// has the sign of x, also where both are 0.
template <class T>
[[gnu::always_inline]] inline T log1p(T x) {
  const T u = T(1) + x;
  const T lost = ((u - T(1)) - x) / u;
  const T correction = u > T(0) ? lost : T(0);
  return with_sign(log(u) - (u < Format<T>::infinity ? correction : T(0)), x);
}

/// 1 / (1 + exp(-x)), written so that exp cannot overflow and small results keep all their digits.
template <class T>
[[gnu::always_inline]] inline T sigmoid(T x) {
  const T e = exp(-absolute(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

/// As in Cephes: below 0.625, x + x^3 P(x^2) / Q(x^2), with an error of 2^-60; above, 1 - 2 / (exp(2x) + 1).
[[gnu::always_inline]] inline double tanh(double x) {
  using F = Format<double>;
  const double a = absolute(x);
  const double z = a * a;
  const double p = polynomial(z, -0.33333333333333326, -0.020496780701307747, -0.00019908867043639004);
  const double q = polynomial(z, 1.0, 0.46149034210390816, 0.023288640948369813, 0.0002064380260642737);
  const auto [y, n] = split_exp(2.0 * a);
  const double e = y * from_bits<double>((n + F::exponent_bias) << F::mantissa_bits);
  const bool small = a < 0.625;
  const double sum = (small ? a : 1.0) + (small ? a * z * p : -2.0) / (small ? q : e + 1.0);
  return with_sign(a > 22.0 ? 1.0 : sum, x);  // There it rounds to 1.
}

/// erf(a) / a - 1 for 0 <= a <= 0.92, z = a^2. Errors of 2^-31 (float) and 2^-59 (double) of erf(a).
[[gnu::always_inline]] inline float erf_head(float z) {
  return polynomial(z, 0.1283791666f, -0.3761263373f, 0.1128369545f, -0.02685939505f, 0.005201022928f,
                    -0.0008142586557f, 0.0000836957335f);
}
[[gnu::always_inline]] inline double erf_head(double z) {
  return polynomial(z, 0.128379167095512573, -0.376126389031837115, 0.112837916709528579,
                    -0.0268661706446378235, 0.00522397761988160146, -0.000854832665278967049,
                    0.000120553172750659889, -0.0000149252107133359798, 1.64538652978152213e-6,
                    -1.62628146852419751e-7, 1.39789896053041754e-8, -8.32872860961771185e-10);
}
/// log(1 - erf(a)) from 0.9 (float) and 0.92 (double) to where erf rounds to 1. Errors of 2^-29 and 2^-61 of
/// erf(a). In float around a point near the lower end, where rounding errors of the logarithm count most.
[[gnu::always_inline]] inline float erf_tail(float a) {
  return polynomial(a - 0.875f, -1.532824516f, -2.430217266f, -0.8265649676f, -0.04680385068f, 0.01115388982f,
                    -0.002009955002f, 0.0001951110316f);
}
[[gnu::always_inline]] inline double erf_tail(double a) {
  return polynomial(
      a, 3.65514693417758202e-9, -1.12837924236714993, -0.636619148435707833, -0.102775598679459143,
      0.0191380915168939418, 0.000186692004012226967, -0.00165635371998674953, 0.000534946762975267458,
      0.000034984425188493098, -0.000118551666723178254, 0.0000685118379023280176, -0.0000257408909526972749,
      7.24100923066853352e-6, -1.58347508534315556e-6, 2.70366655315737786e-7, -3.5524243768778626e-8,
      3.47692055821237211e-9, -2.38945003528377467e-10, 1.02884366137887289e-11, -2.08768647734001959e-13);
}

/// The error function. Where it is steep, x + x P(x^2); where it is flat, 1 - exp(P(|x|)), which forgives
/// rounding errors.
template <class T>
[[gnu::always_inline]] inline T erf(T x) {
  using F = Format<T>;
  constexpr T flat = sizeof(T) == 4 ? T(3.95) : T(6), steep = sizeof(T) == 4 ? T(0.9) : T(0.92);
  const T a = absolute(x);
  const auto [y, n] = split_exp(erf_tail(a > flat ? flat : a));
  const T tail = T(1) - y * from_bits<T>((n + F::exponent_bias) << F::mantissa_bits);
  const T head = erf_head(a * a) * a + a;
  return with_sign(a < steep ? head : tail, x);
}

template <class T>
struct SineCosine {
  T sine;
  T cosine;
};

/// sin and cos of f quarter turns for |f| <= 1/2, with an error of 2^-28 (float) and 2^-58 (double).
[[gnu::always_inline]] inline SineCosine<float> sine_cosine_kernel(float f) {
  const float z = f * f;
  return {f * polynomial(z, 1.570796371f, -0.64596349f, 0.07968003303f, -0.004601656925f),
          polynomial(z, 1.0f, -1.233700514f, 0.2536692321f, -0.02086016536f, 0.0009037665441f)};
}
[[gnu::always_inline]] inline SineCosine<double> sine_cosine_kernel(double f) {
  const double z = f * f;
  return {
      f * polynomial(z, 1.5707963267948966, -0.6459640975062443, 0.07969262624603955, -0.004681754132282392,
                     0.0001604411502915358, -3.5986417542911547e-06, 5.633721018738652e-08),
      polynomial(z, 1.0, -1.2337005501361697, 0.2536695079010468, -0.02086348076331257, 0.0009192602741910653,
                 -2.520203678828285e-05, 4.7106096693149266e-07, -6.321202082074768e-09)};
}

/// sin and cos of `turns` full turns, 0 <= turns < 1.
template <class T>
[[gnu::always_inline]] inline SineCosine<T> sine_cosine_of_turns(T turns) {
  using F = Format<T>;
  constexpr int sign_bit = 8 * sizeof(T) - 1;
  const T quarters = T(4) * turns;
  const T shifted = quarters + F::round_magic;
  const Bits<T> quadrant = bits_of(shifted);
  const auto [sine, cosine] = sine_cosine_kernel(quarters - (shifted - F::round_magic));
  const bool swap = (quadrant & 1) != 0;
  const Bits<T> sine_sign = (quadrant >> 1) << sign_bit;
  const Bits<T> cosine_sign = ((quadrant + 1) >> 1) << sign_bit;
  return {from_bits<T>(bits_of(swap ? cosine : sine) ^ sine_sign),
          from_bits<T>(bits_of(swap ? sine : cosine) ^ cosine_sign)};
}

}  // namespace espalier::math
