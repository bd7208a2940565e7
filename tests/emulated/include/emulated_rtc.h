// The emulated NVRTC prepends this to a source. As with NVRTC, mathematical functions need no include, and
// headers of the C++ library are not available.
#pragma once

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;

#define EMULATED_UNARY(name)                \
  extern "C" double name(double) noexcept;  \
  extern "C" float name##f(float) noexcept; \
  inline float name(float x) noexcept { return __builtin_##name##f(x); }
#define EMULATED_BINARY(name)                      \
  extern "C" double name(double, double) noexcept; \
  extern "C" float name##f(float, float) noexcept; \
  inline float name(float x, float y) noexcept { return __builtin_##name##f(x, y); }
EMULATED_UNARY(sin)
EMULATED_UNARY(cos)
EMULATED_UNARY(tan)
EMULATED_UNARY(asin)
EMULATED_UNARY(acos)
EMULATED_UNARY(atan)
EMULATED_UNARY(sinh)
EMULATED_UNARY(cosh)
EMULATED_UNARY(tanh)
EMULATED_UNARY(asinh)
EMULATED_UNARY(acosh)
EMULATED_UNARY(atanh)
EMULATED_UNARY(exp)
EMULATED_UNARY(exp2)
EMULATED_UNARY(expm1)
EMULATED_UNARY(log)
EMULATED_UNARY(log2)
EMULATED_UNARY(log10)
EMULATED_UNARY(log1p)
EMULATED_UNARY(sqrt)
EMULATED_UNARY(cbrt)
EMULATED_UNARY(erf)
EMULATED_UNARY(erfc)
EMULATED_UNARY(lgamma)
EMULATED_UNARY(tgamma)
EMULATED_UNARY(floor)
EMULATED_UNARY(ceil)
EMULATED_UNARY(trunc)
EMULATED_UNARY(round)
EMULATED_UNARY(rint)
EMULATED_UNARY(nearbyint)
EMULATED_UNARY(fabs)
EMULATED_BINARY(pow)
EMULATED_BINARY(fmod)
EMULATED_BINARY(remainder)
EMULATED_BINARY(atan2)
EMULATED_BINARY(hypot)
EMULATED_BINARY(fmin)
EMULATED_BINARY(fmax)
EMULATED_BINARY(fdim)
EMULATED_BINARY(copysign)
EMULATED_BINARY(nextafter)
#undef EMULATED_UNARY
#undef EMULATED_BINARY
extern "C" double fma(double, double, double) noexcept;
extern "C" float fmaf(float, float, float) noexcept;
inline float fma(float x, float y, float z) noexcept { return __builtin_fmaf(x, y, z); }
extern "C" void sincos(double, double*, double*) noexcept;
extern "C" void sincosf(float, float*, float*) noexcept;
extern "C" double ldexp(double, int) noexcept;
extern "C" float ldexpf(float, int) noexcept;
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool signbit(float x) { return __builtin_signbit(x); }
inline bool signbit(double x) { return __builtin_signbit(x); }
extern "C" int abs(int) noexcept;
inline long abs(long x) { return x < 0 ? -x : x; }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return __builtin_fabsf(x); }
inline double abs(double x) { return __builtin_fabs(x); }
extern "C" void* memcpy(void*, const void*, size_t) noexcept;
extern "C" void* memset(void*, int, size_t) noexcept;

#include "emulated_device.h"

// The entry point of a kernel: its parameters are copies made at the launch.
namespace emulated {
template <size_t... I>
struct Indices {};
template <class... P, size_t... I>
void call(void (*kernel)(P...), void** parameters, Indices<I...>) {
  kernel(*static_cast<P*>(parameters[I])...);
}
template <class... P>
void call(void (*kernel)(P...), void** parameters) {
  call(kernel, parameters, Indices<__integer_pack(sizeof...(P))...>());
}
/// Writes the sizes of a kernel's parameters, and returns their number.
template <class... P>
size_t sizes(void (*)(P...), size_t* sizes) {
  size_t i = 0;
  ((sizes[i++] = sizeof(P)), ...);
  return i;
}
}  // namespace emulated

extern "C" inline void __attribute__((used)) espalier_emulated_attach(emulated::Device* device) {
  emulated::attached = device;
}
