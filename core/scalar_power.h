// Powers of floats on the CPU, computed in double as the functions of scalar_wide.h are.
#pragma once
#include "espalier/core/scalar_wide.h"

namespace espalier::math {

/// log(x) of a finite x > 0, with the digits that exponents and differences of it need: 2 atanh(s) with
/// s = f / (2 + f). The fit of (2 atanh(s) - 2 s) / s^3 has an error of 2^-43 of the result.
[[gnu::always_inline]] inline double precise_log(double x) {
  const auto [e, f] = split_log(x);
  const double s = f / (2.0 + f), z = s * s;
  const double tail = polynomial(z, 0.66666666667411713, 0.3999999874769514, 0.28571764621082702,
                                 0.2219076371263055, 0.1937497117908893);
  return e * 0.69314718055994530942 + (s + s + s * z * tail);
}

/// a^b, as IEEE 754 defines pow: exp(b log |a|) with the sign of a where b is odd, and NaN for other powers
/// of negative numbers than whole ones.
[[gnu::always_inline]] inline float pow(float a, float b) {
  using F = Format<double>;
  const double base = a, x = absolute(base), y = b;
  const double finite = precise_log(x);
  const double positive = x < F::infinity ? finite : x;
  const double size = Wide::exp(y * (x == 0.0 ? -F::infinity : positive));
  const double counted = absolute(y) < 0x1p25 ? y : 0.0;  // floats above are even
  const double shifted = counted + F::round_magic;
  const bool is_whole = shifted - F::round_magic == counted;
  const Bits<double> odd_in_sign = bits_of(is_whole ? shifted : F::round_magic) << 63;
  const double value = from_bits<double>(bits_of(size) | (odd_in_sign & bits_of(base)));
  const bool is_real = is_whole | !(base < 0.0) | (x == F::infinity);
  const bool is_one = (y == 0.0) | (base == 1.0) | ((x == 1.0) & (absolute(y) == F::infinity));
  const double real = is_real ? value : F::nan;
  return static_cast<float>(is_one ? 1.0 : real);
}

}  // namespace espalier::math
