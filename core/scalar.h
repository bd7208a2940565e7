// Functors of pointwise ops: arithmetic, elementary functions, comparisons, casts. The same text is compiled
// for the CPU's loops, by nvcc, and at run time by NVRTC, where half.h's text stands before it and the
// includes below are left out: so nothing else may be included or used. The texts of scalar_functions.h,
// scalar_special.h, scalar_activations.h and scalar_integers.h follow it there.
#pragma once

#ifndef ESPALIER_HD
#ifdef __CUDACC__
#define ESPALIER_HD __host__ __device__ __forceinline__
#else
#define ESPALIER_HD inline __attribute__((always_inline))
#endif
#endif

#ifndef __CUDACC_RTC__
#include "espalier/core/half.h"
#include "espalier/core/scalar_angles.h"
#include "espalier/core/scalar_math.h"
#include "espalier/core/scalar_power.h"
#endif

namespace espalier::scalar {

namespace detail {

// On a device these are CUDA's functions; on the CPU they are ours where ours vectorize, else the C
// library's.
#ifdef __CUDA_ARCH__
using ::cos;
using ::erf;
using ::exp;
using ::fabs;
using ::floor;
using ::log;
using ::log1p;
using ::pow;
using ::sin;
using ::sqrt;
using ::tanh;
template <class T>
ESPALIER_HD T sigmoid(T x) {
  const T e = exp(-fabs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}
#else
using math::erf;
using math::exp;
using math::log;
using math::log1p;
using math::sigmoid;
using math::tanh;
ESPALIER_HD float cos(float x) { return math::of_angle<math::Cosine>(x); }
ESPALIER_HD double cos(double x) { return __builtin_cos(x); }
ESPALIER_HD float fabs(float x) { return __builtin_fabsf(x); }
ESPALIER_HD double fabs(double x) { return __builtin_fabs(x); }
ESPALIER_HD float floor(float x) { return __builtin_floorf(x); }
ESPALIER_HD double floor(double x) { return __builtin_floor(x); }
ESPALIER_HD float pow(float x, float y) { return math::pow(x, y); }
ESPALIER_HD double pow(double x, double y) { return __builtin_pow(x, y); }
ESPALIER_HD float sin(float x) { return math::of_angle<math::Sine>(x); }
ESPALIER_HD double sin(double x) { return __builtin_sin(x); }
ESPALIER_HD float sqrt(float x) { return __builtin_sqrtf(x); }
ESPALIER_HD double sqrt(double x) { return __builtin_sqrt(x); }
#endif

template <class T>
inline constexpr bool is_real = false;
template <>
inline constexpr bool is_real<float> = true;
template <>
inline constexpr bool is_real<double> = true;

template <class T>
inline constexpr bool is_bool = false;
template <>
inline constexpr bool is_bool<bool> = true;

/// What arithmetic on T is done in. Signed integers wrap around, so it is done without the sign.
template <class T>
struct WrappingOf {
  using type = T;
};
template <>
struct WrappingOf<int> {
  using type = unsigned int;
};
template <>
struct WrappingOf<long> {
  using type = unsigned long;
};
template <>
struct WrappingOf<long long> {
  using type = unsigned long long;
};
template <class T>
using Wrapping = typename WrappingOf<T>::type;

/// Compilers vectorize loops over bytes, but not all loops over bools.
template <class T>
ESPALIER_HD T without_bool(T x) {
  return x;
}
ESPALIER_HD unsigned char without_bool(bool x) { return __builtin_bit_cast(unsigned char, x); }

/// 0 or 1.
template <class T>
ESPALIER_HD int truth(T x) {
  return without_bool(x) != 0;
}

/// By repeated squaring. A negative power is cut off to an integer: 0, unless the base is 1 or -1.
template <class T>
ESPALIER_HD T integer_power(T base, T exponent) {
  if (exponent < 0) {
    if (base != 1 && base != -1) return 0;
    return base == 1 || exponent % 2 == 0 ? 1 : -1;
  }
  using W = Wrapping<T>;
  W result = 1;
  W square = static_cast<W>(base);
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result *= square;
    square *= square;
  }
  return static_cast<T>(result);
}

template <class T>
ESPALIER_HD constexpr T power_of_two(int n) {
  T result = 1;
  for (; n > 0; --n) result *= T(2);
  return result;
}

/// From a real to an integer: towards zero, values out of range to the nearest end of it, NaN to 0.
template <class To, class From>
ESPALIER_HD To saturate(From x) {
  constexpr bool has_sign = static_cast<To>(-1) < static_cast<To>(0);
  constexpr int bits = static_cast<int>(8 * sizeof(To)) - (has_sign ? 1 : 0);
  constexpr From limit = power_of_two<From>(bits), least = has_sign ? -limit : From(0);
  constexpr To highest = static_cast<To>(~0ull >> (64 - bits));
  constexpr To lowest = has_sign ? static_cast<To>(-highest - 1) : static_cast<To>(0);
  const bool inside = (x >= least) & (x < limit);
  const To cut = static_cast<To>(inside ? x : From(0));
  const To at_most = x >= limit ? highest : cut;
  return x < least ? lowest : at_most;
}

}  // namespace detail

/// The base of functors of many instructions: they have one loop, which reads operands that do not lie one
/// behind the other through a copy of a block. For all others a loop for each pattern of steps is small, and
/// faster.
struct Costly {};

// Arithmetic.

struct Add {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    using W = detail::Wrapping<T>;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  }
};
struct Subtract {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    using W = detail::Wrapping<T>;
    return static_cast<T>(static_cast<W>(a) - static_cast<W>(b));
  }
};
struct Multiply {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    using W = detail::Wrapping<T>;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  }
};
/// Integers are cut off towards zero; an integer divided by zero gives 0.
struct Divide {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    if constexpr (detail::is_real<T>) {
      return a / b;
    } else {
      if (b == T(0)) return T(0);
      return b == T(-1) ? static_cast<T>(-static_cast<detail::Wrapping<T>>(a)) : static_cast<T>(a / b);
    }
  }
};
struct Power : Costly {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    if constexpr (detail::is_real<T>)
      return detail::pow(a, b);
    else
      return detail::integer_power(a, b);
  }
};
struct Negative {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return static_cast<T>(-static_cast<detail::Wrapping<T>>(x));
  }
};
struct Reciprocal {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return T(1) / x;
  }
};
struct Square {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return Multiply()(x, x);
  }
};
struct Abs {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    if constexpr (detail::is_real<T>)
      return detail::fabs(x);
    else
      return x < T(0) ? Negative()(x) : x;
  }
};
/// -1, 0 or 1; zeros and NaN stay as they are.
struct Sign {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    const T negative = x < T(0) ? T(-1) : x;
    return x > T(0) ? T(1) : negative;
  }
};
/// NaN if either is.
struct Maximum {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    return ((a > b) | (a != a)) ? a : b;
  }
};
/// NaN if either is.
struct Minimum {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    return ((a < b) | (a != a)) ? a : b;
  }
};

// Functions of reals.

struct Exp : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::exp(x);
  }
};
struct Log : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::log(x);
  }
};
/// log(1 + x). Softplus is max(x, 0) + log1p(exp(-|x|)).
struct Log1p : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::log1p(x);
  }
};
struct Sqrt {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::sqrt(x);
  }
};
struct Sin : Costly {
#ifndef __CUDA_ARCH__
  static constexpr float bound = math::moderate_angle;
  static float bounded(float x) { return math::of_moderate_angle<math::Sine>(x); }
#endif
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::sin(x);
  }
};
struct Cos : Costly {
#ifndef __CUDA_ARCH__
  static constexpr float bound = math::moderate_angle;
  static float bounded(float x) { return math::of_moderate_angle<math::Cosine>(x); }
#endif
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::cos(x);
  }
};
struct Floor {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    if constexpr (detail::is_real<T>)
      return detail::floor(x);
    else
      return x;
  }
};
struct Tanh : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::tanh(x);
  }
};
/// 1 / (1 + exp(-x)).
struct Sigmoid : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::sigmoid(x);
  }
};
struct Erf : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::erf(x);
  }
};
/// NaN stays NaN.
struct Relu {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return x < T(0) ? T(0) : x;
  }
};

/// g where y > 0: the slope of Relu, by its output.
struct ReluGradient {
  template <class T>
  ESPALIER_HD T operator()(T g, T y) const {
    return y > T(0) ? g : T(0);
  }
};

/// The functions of one real, for compilers that make a kernel of each.
template <class... F>
struct Functors {};
using RealFunctions = Functors<Exp, Log, Log1p, Sqrt, Sin, Cos, Tanh, Sigmoid, Erf, Relu>;

// Comparisons and logic.

struct Equal {
  template <class T>
  ESPALIER_HD bool operator()(T a, T b) const {
    return detail::without_bool(a) == detail::without_bool(b);
  }
};
struct NotEqual {
  template <class T>
  ESPALIER_HD bool operator()(T a, T b) const {
    return detail::without_bool(a) != detail::without_bool(b);
  }
};
struct Less {
  template <class T>
  ESPALIER_HD bool operator()(T a, T b) const {
    return detail::without_bool(a) < detail::without_bool(b);
  }
};
struct LessEqual {
  template <class T>
  ESPALIER_HD bool operator()(T a, T b) const {
    return detail::without_bool(a) <= detail::without_bool(b);
  }
};
struct Greater {
  template <class T>
  ESPALIER_HD bool operator()(T a, T b) const {
    return detail::without_bool(a) > detail::without_bool(b);
  }
};
struct GreaterEqual {
  template <class T>
  ESPALIER_HD bool operator()(T a, T b) const {
    return detail::without_bool(a) >= detail::without_bool(b);
  }
};
struct LogicalAnd {
  template <class T>
  ESPALIER_HD bool operator()(T a, T b) const {
    return detail::truth(a) & detail::truth(b);
  }
};
struct LogicalOr {
  template <class T>
  ESPALIER_HD bool operator()(T a, T b) const {
    return detail::truth(a) | detail::truth(b);
  }
};
struct LogicalNot {
  template <class T>
  ESPALIER_HD bool operator()(T x) const {
    return detail::truth(x) == 0;
  }
};
struct Select {
  template <class T>
  ESPALIER_HD T operator()(bool condition, T a, T b) const {
    return detail::truth(condition) != 0 ? a : b;
  }
};

// Between element types.

/// To bool: whether x is not zero. From a real to an integer: towards zero, out of range to the nearest end,
/// NaN to 0. From an integer to a smaller one: its low bits. To a 16-bit real: the nearest.
template <class To>
struct Cast {
  template <class From>
  ESPALIER_HD To operator()(From x) const {
    if constexpr (is_half_type<From>)
      return Cast<To>()(static_cast<float>(x));
    else if constexpr (detail::is_bool<To>)
      return detail::truth(x) != 0;
    else if constexpr (is_half_type<To>)
      return To(x);
    else if constexpr (detail::is_real<From> && !detail::is_real<To>)
      return detail::saturate<To>(x);
    else
      return static_cast<To>(detail::without_bool(x));
  }
};

}  // namespace espalier::scalar
