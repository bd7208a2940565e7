// Functors of pointwise ops: rounding, division with its rest, and bits. What scalar.h says of its text holds
// here, too.
#pragma once

#ifndef __CUDACC_RTC__
#include "espalier/core/scalar_functions.h"
#endif

namespace espalier::scalar {

struct Ceil {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    if constexpr (detail::is_real<T>)
      return detail::ceil(x);
    else
      return x;
  }
};
/// To the nearest integer; ties go to the even one.
struct Round {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    if constexpr (detail::is_real<T>)
      return detail::rint(x);
    else
      return x;
  }
};
/// Towards zero.
struct Trunc {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    if constexpr (detail::is_real<T>)
      return detail::trunc(x);
    else
      return x;
  }
};

namespace detail {
/// Whether the quotient of a and b, whose rest is not 0, lies below zero.
template <class T>
ESPALIER_HD bool signs_differ(T a, T b) {
  return (a < T(0)) != (b < T(0));
}
/// The rest of a division that is cut off towards zero; 0 where integers are divided by zero.
template <class T>
ESPALIER_HD T rest(T a, T b) {
  if constexpr (is_real<T>) {
    return fmod(a, b);
  } else {
    return b == T(0) || b == T(-1) ? T(0) : static_cast<T>(a % b);
  }
}
/// The rest with the sign of b, by that with the sign of a.
template <class T>
ESPALIER_HD T rest_above(T rest, T b) {
  const T moved = rest + b;
  return ((rest != T(0)) & signs_differ(rest, b)) ? moved : rest;
}
/// The integer at or below a / b for reals, by the rest of a division that is cut off. b is not 0.
template <class T>
ESPALIER_HD T whole_quotient(T a, T b, T rest) {
  const T exact = (a - rest) / b - (((rest != T(0)) & signs_differ(rest, b)) ? T(1) : T(0));
  const T below = floor(exact);
  const T nearest = exact - below > T(0.5) ? below + T(1) : below;
  return exact == T(0) ? copysign(T(0), a / b) : nearest;
}
}  // namespace detail

/// With the sign of a.
struct Fmod {
#ifndef __CUDA_ARCH__
  static bool within(float a, float b) { return detail::has_short_quotient(a, b); }
  static float bounded(float a, float b) { return detail::fmod_of_short_quotient(a, b); }
#endif
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    return detail::rest(a, b);
  }
};
/// With the sign of b, as in Python.
struct Remainder {
#ifndef __CUDA_ARCH__
  static bool within(float a, float b) { return Fmod::within(a, b); }
  static float bounded(float a, float b) { return detail::rest_above(Fmod::bounded(a, b), b); }
#endif
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    const T rest = detail::rest(a, b);
    if constexpr (detail::is_real<T>)
      return detail::rest_above(rest, b);
    else
      return rest != T(0) && detail::signs_differ(rest, b) ? rest + b : rest;
  }
};
/// The integer at or below a / b, as in Python: for reals the one that goes with Remainder, which may differ
/// from the rounded quotient's. An integer divided by zero gives 0.
struct FloorDivide {
#ifndef __CUDA_ARCH__
  static bool within(float a, float b) { return Fmod::within(a, b); }
  static float bounded(float a, float b) { return detail::whole_quotient(a, b, Fmod::bounded(a, b)); }
#endif
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    if constexpr (detail::is_real<T>) {
      return b == T(0) ? a / b : detail::whole_quotient(a, b, detail::fmod(a, b));
    } else {
      const T quotient = Divide()(a, b), rest = detail::rest(a, b);
      return rest != T(0) && detail::signs_differ(a, b) ? quotient - T(1) : quotient;
    }
  }
};
/// 0 below zero and for NaN, 1 above, and `at_zero` at zero.
struct Heaviside {
  template <class T>
  ESPALIER_HD T operator()(T x, T at_zero) const {
    const T step = x > T(0) ? T(1) : T(0);
    return x == T(0) ? at_zero : step;
  }
};

struct IsNan {
  template <class T>
  ESPALIER_HD bool operator()(T x) const {
    return x != x;
  }
};
struct IsInf {
  template <class T>
  ESPALIER_HD bool operator()(T x) const {
    return !(x - x == T(0)) & (x == x);  // their difference is NaN
  }
};
struct IsPosInf {
  template <class T>
  ESPALIER_HD bool operator()(T x) const {
    return !(x - x == T(0)) & (x > T(0));
  }
};
struct IsNegInf {
  template <class T>
  ESPALIER_HD bool operator()(T x) const {
    return !(x - x == T(0)) & (x < T(0));
  }
};
struct IsFinite {
  template <class T>
  ESPALIER_HD bool operator()(T x) const {
    return x - x == T(0);
  }
};

struct LogicalXor {
  template <class T>
  ESPALIER_HD bool operator()(T a, T b) const {
    return detail::truth(a) != detail::truth(b);
  }
};
// Of bools: and, or, xor, not.
struct BitwiseAnd {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    return static_cast<T>(detail::without_bool(a) & detail::without_bool(b));
  }
};
struct BitwiseOr {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    return static_cast<T>(detail::without_bool(a) | detail::without_bool(b));
  }
};
struct BitwiseXor {
  template <class T>
  ESPALIER_HD T operator()(T a, T b) const {
    return static_cast<T>(detail::without_bool(a) ^ detail::without_bool(b));
  }
};
struct BitwiseNot {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    if constexpr (detail::is_bool<T>)
      return !x;
    else
      return ~x;
  }
};
/// Bits that leave the number are lost. A shift by less than 0 or by all bits gives 0.
struct BitwiseLeftShift {
  template <class T>
  ESPALIER_HD T operator()(T a, T by) const {
    using W = detail::Wrapping<T>;
    const bool inside = by >= T(0) && by < T(8 * sizeof(T));
    return inside ? static_cast<T>(static_cast<W>(a) << by) : T(0);
  }
};
/// Keeps the sign. A shift by less than 0 or by all bits gives 0 or -1.
struct BitwiseRightShift {
  template <class T>
  ESPALIER_HD T operator()(T a, T by) const {
    constexpr T most = T(8 * sizeof(T) - 1);
    return a >> (by >= T(0) && by < most ? by : most);
  }
};

}  // namespace espalier::scalar
