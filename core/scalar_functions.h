// Functors of pointwise ops: further functions of reals. What scalar.h says of its text holds here, too.
#pragma once

#ifndef __CUDACC_RTC__
#include "espalier/core/scalar.h"
#endif

namespace espalier::scalar {

namespace detail {

#ifdef __CUDA_ARCH__
using ::acos;
using ::acosh;
using ::asin;
using ::asinh;
using ::atan;
using ::atan2;
using ::atanh;
using ::ceil;
using ::copysign;
using ::cosh;
using ::erfc;
using ::exp2;
using ::expm1;
using ::fmod;
using ::log10;
using ::log2;
using ::rint;
using ::sinh;
using ::tan;
using ::trunc;
/// CUDA's overflows where the smaller operand adds nothing to the largest numbers.
ESPALIER_HD double hypot(double a, double b) {
  const double x = fabs(a), y = fabs(b);
  if (y <= x * 0x1p-28) return x;
  return x <= y * 0x1p-28 ? y : ::hypot(a, b);
}
ESPALIER_HD float hypot(float a, float b) { return ::hypot(a, b); }
#else
ESPALIER_HD float acos(float x) { return math::acos(x); }
ESPALIER_HD double acos(double x) { return __builtin_acos(x); }
ESPALIER_HD double acosh(double x) { return __builtin_acosh(x); }
ESPALIER_HD float asin(float x) { return math::asin(x); }
ESPALIER_HD double asin(double x) { return __builtin_asin(x); }
ESPALIER_HD double asinh(double x) { return __builtin_asinh(x); }
ESPALIER_HD float atan(float x) { return math::atan(x); }
ESPALIER_HD double atan(double x) { return __builtin_atan(x); }
ESPALIER_HD float atan2(float y, float x) { return math::atan2(y, x); }
ESPALIER_HD double atan2(double y, double x) { return __builtin_atan2(y, x); }
ESPALIER_HD double atanh(double x) { return __builtin_atanh(x); }
ESPALIER_HD float ceil(float x) { return __builtin_ceilf(x); }
ESPALIER_HD double ceil(double x) { return __builtin_ceil(x); }
ESPALIER_HD float copysign(float x, float sign) { return __builtin_copysignf(x, sign); }
ESPALIER_HD double copysign(double x, double sign) { return __builtin_copysign(x, sign); }
ESPALIER_HD double cosh(double x) { return __builtin_cosh(x); }
ESPALIER_HD float erfc(float x) { return math::erfc(x); }
ESPALIER_HD double erfc(double x) { return __builtin_erfc(x); }
ESPALIER_HD double exp2(double x) { return __builtin_exp2(x); }
ESPALIER_HD double expm1(double x) { return __builtin_expm1(x); }
/// A quotient below 2^28 is never rounded to another integer, and its product with b is exact in double.
ESPALIER_HD bool has_short_quotient(float a, float b) { return fabs(a) < 0x1p27f * fabs(b); }
ESPALIER_HD float fmod_of_short_quotient(float a, float b) {
  const double wide = a, divisor = b, quotient = __builtin_trunc(wide / divisor);
  const float rest = __builtin_copysignf(static_cast<float>(wide - quotient * divisor), a);
  return quotient == 0.0 ? a : rest;
}
ESPALIER_HD float fmod(float a, float b) {
  return has_short_quotient(a, b) ? fmod_of_short_quotient(a, b) : __builtin_fmodf(a, b);
}
ESPALIER_HD double fmod(double a, double b) { return __builtin_fmod(a, b); }
ESPALIER_HD float hypot(float a, float b) {
  constexpr double infinite = math::Format<double>::infinity;
  const double x = __builtin_fabs(static_cast<double>(a)), y = __builtin_fabs(static_cast<double>(b));
  const double finite = __builtin_sqrt(x * x + y * y);
  return static_cast<float>(x == infinite || y == infinite ? infinite : finite);
}
ESPALIER_HD double hypot(double a, double b) { return __builtin_hypot(a, b); }
ESPALIER_HD double log10(double x) { return __builtin_log10(x); }
ESPALIER_HD double log2(double x) { return __builtin_log2(x); }
ESPALIER_HD float rint(float x) { return __builtin_rintf(x); }
ESPALIER_HD double rint(double x) { return __builtin_rint(x); }
ESPALIER_HD double sinh(double x) { return __builtin_sinh(x); }
ESPALIER_HD float tan(float x) { return math::of_angle<math::Tangent>(x); }
ESPALIER_HD double tan(double x) { return __builtin_tan(x); }
ESPALIER_HD float trunc(float x) { return __builtin_truncf(x); }
ESPALIER_HD double trunc(double x) { return __builtin_trunc(x); }

// Of floats, vectorizable; most by way of double.
ESPALIER_HD float exp2(float x) { return math::exp2(x); }
ESPALIER_HD float expm1(float x) { return static_cast<float>(math::Wide::expm1(x)); }
ESPALIER_HD float log2(float x) { return static_cast<float>(math::Wide::log(x) * 1.44269504088896340736); }
ESPALIER_HD float log10(float x) { return static_cast<float>(math::Wide::log(x) * 0.43429448190325182765); }
ESPALIER_HD float sinh(float x) {
  const double a = fabs(static_cast<double>(x));
  const double e = math::Wide::expm1(a > 150.0 ? 150.0 : a);
  return static_cast<float>(copysign(0.5 * (e + e / (e + 1.0)), static_cast<double>(x)));
}
ESPALIER_HD float cosh(float x) {
  const double a = fabs(static_cast<double>(x));
  const double e = math::Wide::exp(a > 150.0 ? 150.0 : a);
  return static_cast<float>(0.5 * (e + 1.0 / e));
}
/// log(a + sqrt(a^2 + 1)), by log1p.
ESPALIER_HD float asinh(float x) {
  const double wide = x, a = fabs(wide), square = a * a;
  const double y = math::Wide::log1p(a + square / (1.0 + sqrt(square + 1.0)));
  return static_cast<float>(copysign(a < math::Format<double>::infinity ? y : a, wide));
}
ESPALIER_HD float acosh(float x) {
  const double wide = x, above = wide - 1.0;
  const double y = math::Wide::log1p(above + sqrt(above * (above + 2.0)));
  return static_cast<float>(wide < 1.0 ? math::Format<double>::nan : y);
}
ESPALIER_HD float atanh(float x) {
  const double wide = x, a = fabs(wide);
  return static_cast<float>(copysign(0.5 * math::Wide::log1p(2.0 * a / (1.0 - a)), wide));
}
#endif

/// The elementary functions of T as they are.
struct Full {
  template <class T>
  ESPALIER_HD static T exp(T x) {
    return detail::exp(x);
  }
  template <class T>
  ESPALIER_HD static T expm1(T x) {
    return detail::expm1(x);
  }
  template <class T>
  ESPALIER_HD static T log1p(T x) {
    return detail::log1p(x);
  }
  template <class T>
  ESPALIER_HD static T log1p_exp_minus(T a) {
    return detail::log1p(detail::exp(-a));
  }
  template <class T>
  ESPALIER_HD static T sigmoid(T x) {
    return detail::sigmoid(x);
  }
};

/// Formula::of<M>(x…) with the elementary functions M: on the CPU floats are computed in double.
template <class Formula, class... Real>
ESPALIER_HD auto evaluate(float x, Real... more) {
#ifdef __CUDA_ARCH__
  return Formula::template of<Full>(x, more...);
#else
  return static_cast<float>(
      Formula::template of<math::Wide>(static_cast<double>(x), static_cast<double>(more)...));
#endif
}
template <class Formula, class... Real>
ESPALIER_HD auto evaluate(double x, Real... more) {
  return Formula::template of<Full>(x, more...);
}

}  // namespace detail

struct Rsqrt {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return T(1) / detail::sqrt(x);
  }
};
struct Cube {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return Multiply()(Multiply()(x, x), x);
  }
};
struct Exp2 : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::exp2(x);
  }
};
/// exp(x) - 1.
struct Expm1 : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::expm1(x);
  }
};
struct Log2 : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::log2(x);
  }
};
struct Log10 : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::log10(x);
  }
};
struct Tan : Costly {
#ifndef __CUDA_ARCH__
  static constexpr float bound = math::moderate_angle;
  static float bounded(float x) { return math::of_moderate_angle<math::Tangent>(x); }
#endif
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::tan(x);
  }
};
struct Asin : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::asin(x);
  }
};
struct Acos : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::acos(x);
  }
};
struct Atan : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::atan(x);
  }
};
struct Sinh : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::sinh(x);
  }
};
struct Cosh : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::cosh(x);
  }
};
struct Asinh : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::asinh(x);
  }
};
struct Acosh : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::acosh(x);
  }
};
struct Atanh : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::atanh(x);
  }
};
/// 1 - erf(x).
struct Erfc : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::erfc(x);
  }
};
/// The angle of the point (x, y).
struct Atan2 : Costly {
  template <class T>
  ESPALIER_HD T operator()(T y, T x) const {
    return detail::atan2(y, x);
  }
};
struct Hypot {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    return detail::hypot(a, b);
  }
};
/// log(exp(a) + exp(b)). Equal infinities stay.
struct LogAddExp : Costly {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    return detail::evaluate<Formula>(a, b);
  }
  struct Formula {
    template <class M, class T>
    ESPALIER_HD static T of(T a, T b) {
      const T larger = Maximum()(a, b), apart = a == b ? T(0) : detail::fabs(a - b);
      return larger + M::log1p_exp_minus(apart);
    }
  };
};

using MoreRealFunctions =
    Functors<Rsqrt, Exp2, Expm1, Log2, Log10, Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh, Erfc>;

}  // namespace espalier::scalar
