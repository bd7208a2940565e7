// Powers with one exponent for a whole row.
#pragma once
#include <cstdint>
#include <type_traits>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/scalar.h"

namespace espalier::detail {

/// out[i] = a[i]^exponent for the exponents that take no logarithm: 2, 3, -1 and 1/2. Returns false for
/// others. Cubes of floats are computed in double.
template <class T>
bool constant_power_row(int64_t n, T* out, const T* a, T exponent) {
  using Wide = std::conditional_t<std::is_same_v<T, float>, double, T>;
  const auto run = [=](auto f) {
    vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) out[i] = f(a[i]);
    });
    return true;
  };
  if (exponent == T(2)) return run([](T x) __attribute__((always_inline)) { return x * x; });
  if (exponent == T(-1)) return run([](T x) __attribute__((always_inline)) { return T(1) / x; });
  if (exponent == T(3) && sizeof(T) < sizeof(Wide))
    return run([](T x) __attribute__((always_inline)) {
      const Wide wide = x;
      return static_cast<T>(wide * wide * wide);
    });
  if (exponent == T(0.5))
    return run([](T x) __attribute__((always_inline)) {
      const T root = scalar::detail::sqrt(x + T(0));  // of -0, 0
      return x == -math::Format<T>::infinity ? math::Format<T>::infinity : root;
    });
  return false;
}

}  // namespace espalier::detail
