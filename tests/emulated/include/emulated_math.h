// CUDA's arithmetic and mathematical functions, by those of the C library.
#pragma once

#ifndef __CUDACC_RTC__
#include <cmath>
#endif

#define EMULATED_LEAST_AND_GREATEST(result, first, second)                           \
  constexpr result min(first a, second b) {                                          \
    return static_cast<result>(a) < static_cast<result>(b) ? static_cast<result>(a)  \
                                                           : static_cast<result>(b); \
  }                                                                                  \
  constexpr result max(first a, second b) {                                          \
    return static_cast<result>(a) < static_cast<result>(b) ? static_cast<result>(b)  \
                                                           : static_cast<result>(a); \
  }
#define EMULATED_LEAST_AND_GREATEST_OF(signed_, unsigned_)     \
  EMULATED_LEAST_AND_GREATEST(signed_, signed_, signed_)       \
  EMULATED_LEAST_AND_GREATEST(unsigned_, unsigned_, unsigned_) \
  EMULATED_LEAST_AND_GREATEST(unsigned_, signed_, unsigned_)   \
  EMULATED_LEAST_AND_GREATEST(unsigned_, unsigned_, signed_)
EMULATED_LEAST_AND_GREATEST_OF(int, unsigned)
EMULATED_LEAST_AND_GREATEST_OF(long, unsigned long)
EMULATED_LEAST_AND_GREATEST_OF(long long, unsigned long long)
#undef EMULATED_LEAST_AND_GREATEST_OF
#undef EMULATED_LEAST_AND_GREATEST
// As fmin and fmax: for a number and NaN, the number.
inline float min(float a, float b) { return __builtin_fminf(a, b); }
inline float max(float a, float b) { return __builtin_fmaxf(a, b); }
inline double min(double a, double b) { return __builtin_fmin(a, b); }
inline double max(double a, double b) { return __builtin_fmax(a, b); }
inline double min(float a, double b) { return __builtin_fmin(a, b); }
inline double max(float a, double b) { return __builtin_fmax(a, b); }
inline double min(double a, float b) { return __builtin_fmin(a, b); }
inline double max(double a, float b) { return __builtin_fmax(a, b); }

// The fast functions of a device are less exact; here they are not. Some of their names are declared in the C
// library's headers, and so must be noexcept.
inline float __expf(float x) noexcept { return __builtin_expf(x); }
inline float __exp10f(float x) noexcept { return __builtin_powf(10.0f, x); }
inline float __logf(float x) noexcept { return __builtin_logf(x); }
inline float __log2f(float x) noexcept { return __builtin_log2f(x); }
inline float __log10f(float x) noexcept { return __builtin_log10f(x); }
inline float __powf(float x, float y) noexcept { return __builtin_powf(x, y); }
inline float __sinf(float x) noexcept { return __builtin_sinf(x); }
inline float __cosf(float x) noexcept { return __builtin_cosf(x); }
inline float __tanf(float x) noexcept { return __builtin_tanf(x); }
inline float __saturatef(float x) noexcept { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __fdividef(float a, float b) noexcept { return a / b; }
inline float __fadd_rn(float a, float b) noexcept { return a + b; }
inline float __fsub_rn(float a, float b) noexcept { return a - b; }
inline float __fmul_rn(float a, float b) noexcept { return a * b; }
inline float __fdiv_rn(float a, float b) noexcept { return a / b; }
inline float __fmaf_rn(float a, float b, float c) noexcept { return __builtin_fmaf(a, b, c); }
inline float __frcp_rn(float x) noexcept { return 1.0f / x; }
inline float __fsqrt_rn(float x) noexcept { return __builtin_sqrtf(x); }
inline float __frsqrt_rn(float x) noexcept { return static_cast<float>(1.0 / __builtin_sqrt(x)); }
inline double __dadd_rn(double a, double b) noexcept { return a + b; }
inline double __dsub_rn(double a, double b) noexcept { return a - b; }
inline double __dmul_rn(double a, double b) noexcept { return a * b; }
inline double __ddiv_rn(double a, double b) noexcept { return a / b; }
inline double __dsqrt_rn(double x) noexcept { return __builtin_sqrt(x); }
inline double __fma_rn(double a, double b, double c) noexcept { return __builtin_fma(a, b, c); }

inline float rsqrtf(float x) noexcept { return static_cast<float>(1.0 / __builtin_sqrt(x)); }
inline double rsqrt(double x) noexcept { return 1.0 / __builtin_sqrt(x); }
inline float rsqrt(float x) noexcept { return rsqrtf(x); }
inline float normcdff(float x) noexcept { return 0.5f * __builtin_erfcf(x * -0.70710678118654752440f); }
inline double normcdf(double x) noexcept { return 0.5 * __builtin_erfc(x * -0.70710678118654752440); }
inline float normcdf(float x) noexcept { return normcdff(x); }

/// Sine and cosine of pi x: x is reduced exactly, so whole and half turns are exact.
inline void sincospi(double x, double* sine, double* cosine) noexcept {
  const double quarters = __builtin_rint(2.0 * x);
  const double rest = (x - 0.5 * quarters) * 3.14159265358979323846;
  const double s = __builtin_sin(rest), c = __builtin_cos(rest);
  switch (static_cast<int>(quarters - 4.0 * __builtin_floor(0.25 * quarters))) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s; break;
  }
}
inline void sincospif(float x, float* sine, float* cosine) noexcept {
  double s, c;
  sincospi(x, &s, &c);
  *sine = static_cast<float>(s), *cosine = static_cast<float>(c);
}
inline double sinpi(double x) noexcept {
  double s, c;
  sincospi(x, &s, &c);
  return s;
}
inline double cospi(double x) noexcept {
  double s, c;
  sincospi(x, &s, &c);
  return c;
}
inline float sinpif(float x) noexcept { return static_cast<float>(sinpi(x)); }
inline float cospif(float x) noexcept { return static_cast<float>(cospi(x)); }

// From floats to integers, rounded to nearest, to zero, down or up; out of range to the nearest end, NaN to
// 0.
namespace emulated {
template <class To, class From>
To to_integer(From x, long long low, double beyond) {
  if (x != x) return To(0);
  if (x >= static_cast<From>(beyond)) return static_cast<To>(-(low + 1));
  if (x <= static_cast<From>(low)) return static_cast<To>(low);
  return static_cast<To>(x);
}
inline int to_int(double x) { return to_integer<int>(x, -2147483647 - 1, 0x1p31); }
inline long long to_longlong(double x) {
  return to_integer<long long>(x, -9223372036854775807ll - 1, 0x1p63);
}
inline unsigned to_uint(double x) {
  if (!(x > 0)) return 0u;
  return x >= 0x1p32 ? 0xffffffffu : static_cast<unsigned>(x);
}
}  // namespace emulated
inline int __float2int_rn(float x) { return emulated::to_int(__builtin_rintf(x)); }
inline int __float2int_rz(float x) { return emulated::to_int(__builtin_truncf(x)); }
inline int __float2int_rd(float x) { return emulated::to_int(__builtin_floorf(x)); }
inline int __float2int_ru(float x) { return emulated::to_int(__builtin_ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return emulated::to_uint(__builtin_rintf(x)); }
inline unsigned __float2uint_rz(float x) { return emulated::to_uint(__builtin_truncf(x)); }
inline int __double2int_rn(double x) { return emulated::to_int(__builtin_rint(x)); }
inline int __double2int_rz(double x) { return emulated::to_int(__builtin_trunc(x)); }
inline long long __float2ll_rn(float x) { return emulated::to_longlong(__builtin_rintf(x)); }
inline long long __float2ll_rz(float x) { return emulated::to_longlong(__builtin_truncf(x)); }
inline long long __double2ll_rn(double x) { return emulated::to_longlong(__builtin_rint(x)); }
inline long long __double2ll_rz(double x) { return emulated::to_longlong(__builtin_trunc(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
