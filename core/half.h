// The 16-bit reals: IEEE half precision and bfloat16. They are stored, moved and converted; what is computed
// with them is computed in float32. The same text is compiled for the CPU, by nvcc, and at run time by NVRTC:
// so nothing is included or used.
#pragma once

#ifndef ESPALIER_HD
#ifdef __CUDACC__
#define ESPALIER_HD __host__ __device__ __forceinline__
#else
#define ESPALIER_HD inline __attribute__((always_inline))
#endif
#endif

namespace espalier {

namespace detail {

ESPALIER_HD unsigned int bits_of(float x) { return __builtin_bit_cast(unsigned int, x); }
ESPALIER_HD float float_of(unsigned int bits) { return __builtin_bit_cast(float, bits); }

inline constexpr unsigned int float_sign = 0x80000000u, float_infinity = 0x7f800000u;
inline constexpr unsigned short half_nan = 0x7fff;  // what a GPU makes of every NaN

// Without branches, so that loops over them are vectorized. Ties go to the even neighbour.

ESPALIER_HD unsigned short float16_bits(float x) {
#if defined(__CUDA_ARCH__) && !defined(ESPALIER_EMULATED_CUDA)
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  constexpr unsigned int least_normal = 113u << 23, too_large = 143u << 23;  // 2^-14, 2^16
  constexpr unsigned int aligns = 126u << 23;  // 0.5: its last bit is worth the smallest float16
  const unsigned int all = bits_of(x), sign = all & float_sign, size = all ^ sign;
  const unsigned int rounded = (size + 0xfffu + ((size >> 13) & 1u) - (112u << 23)) >> 13;
  const unsigned int small = bits_of(float_of(size) + float_of(aligns)) - aligns;
  const unsigned int special = size > float_infinity ? half_nan : 0x7c00u;
  const unsigned int finite = size < least_normal ? small : rounded;
  const unsigned int result = size >= too_large ? special : finite;
  return static_cast<unsigned short>(size > float_infinity ? result : result | sign >> 16);
#endif
}

ESPALIER_HD float float16_value(unsigned short bits) {
#if defined(__CUDA_ARCH__) && !defined(ESPALIER_EMULATED_CUDA)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
#else
  const unsigned int sign = (bits & 0x8000u) << 16, size = (bits & 0x7fffu) << 13;
  const unsigned int exponent = size & (31u << 23);
  const unsigned int normal = size + (112u << 23), special = size + (224u << 23);
  const float small = float_of(size + (113u << 23)) - float_of(113u << 23);
  const unsigned int finite = exponent == 0 ? bits_of(small) : normal;
  return float_of((exponent == 31u << 23 ? special : finite) | sign);
#endif
}

ESPALIER_HD unsigned short bfloat16_bits(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(ESPALIER_EMULATED_CUDA)
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
#else
  const unsigned int all = bits_of(x);
  const unsigned int rounded = (all + 0x7fffu + ((all >> 16) & 1u)) >> 16;
  return static_cast<unsigned short>((all & ~float_sign) > float_infinity ? half_nan : rounded);
#endif
}

ESPALIER_HD float bfloat16_value(unsigned short bits) {
  return float_of(static_cast<unsigned int>(bits) << 16);
}

/// The nearest float, or where there is none the odd one of the two beside it: rounding that once more gives
/// what rounding the double once would have given.
ESPALIER_HD float to_odd_float(double x) {
  const float near = static_cast<float>(x);
  const double back = static_cast<double>(near);
  const unsigned int bits = bits_of(near);
  if (back == x || x != x || (bits & 1u)) return near;
  const bool above = x < 0 ? back < x : back > x;  // in size
  return float_of(above ? bits - 1u : bits + 1u);
}
/// The same of an integer, by way of a double that is just as odd.
ESPALIER_HD float to_odd_float(long long x) {
  const bool negative = x < 0;
  unsigned long long size = static_cast<unsigned long long>(x);
  if (negative) size = 0 - size;
  if (size >> 53) size = (size >> 11 | ((size & 0x7ffu) != 0)) << 11;
  const double exact = static_cast<double>(size);
  return to_odd_float(negative ? -exact : exact);
}
ESPALIER_HD float to_odd_float(float x) { return x; }
ESPALIER_HD float to_odd_float(long x) { return to_odd_float(static_cast<long long>(x)); }
ESPALIER_HD float to_odd_float(int x) { return to_odd_float(static_cast<double>(x)); }
ESPALIER_HD float to_odd_float(unsigned char x) { return static_cast<float>(x); }
ESPALIER_HD float to_odd_float(signed char x) { return static_cast<float>(x); }
ESPALIER_HD float to_odd_float(short x) { return static_cast<float>(x); }
ESPALIER_HD float to_odd_float(bool x) { return x ? 1.0f : 0.0f; }

}  // namespace detail

/// 5 bits of exponent and 10 of mantissa: from 6e-8 to 65504, with 3 to 4 decimal digits.
struct Float16 {
  unsigned short bits;
  Float16() = default;
  /// Rounded once, to nearest; ties to even.
  template <class T>
  ESPALIER_HD explicit Float16(T x) : bits(detail::float16_bits(detail::to_odd_float(x))) {}
  ESPALIER_HD operator float() const { return detail::float16_value(bits); }
};

/// The upper half of a float32: its range, with 2 to 3 decimal digits.
struct BFloat16 {
  unsigned short bits;
  BFloat16() = default;
  /// Rounded once, to nearest; ties to even.
  template <class T>
  ESPALIER_HD explicit BFloat16(T x) : bits(detail::bfloat16_bits(detail::to_odd_float(x))) {}
  ESPALIER_HD operator float() const { return detail::bfloat16_value(bits); }
};

template <class T>
inline constexpr bool is_half_type = false;
template <>
inline constexpr bool is_half_type<Float16> = true;
template <>
inline constexpr bool is_half_type<BFloat16> = true;

/// The type in which elements of type T are computed: float for the 16-bit reals.
template <class T>
struct Compute {
  using type = T;
};
template <>
struct Compute<Float16> {
  using type = float;
};
template <>
struct Compute<BFloat16> {
  using type = float;
};
template <class T>
using compute_t = typename Compute<T>::type;

}  // namespace espalier
