// CUDA's language for device code: keywords, vector types, built-in variables, barriers, warp functions,
// atomics and bit casts. Includes nothing, since the emulated NVRTC compiles generated kernels with it, too.
#pragma once

#define __host__
#define __device__
#define __global__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ static  // one block runs at a time, but in cooperative launches
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __restrict__ __restrict

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

namespace emulated {
/// What make_float4 and the others are.
template <class Vector>
struct Make {
  template <class... Elements>
  constexpr Vector operator()(Elements... elements) const {
    static_assert(sizeof...(elements) * sizeof(Vector::x) == sizeof(Vector));
    return {static_cast<decltype(Vector::x)>(elements)...};
  }
};
}  // namespace emulated

#define EMULATED_VECTORS(name, element, align2, align4)       \
  struct name##1 {                                            \
    element x;                                                \
  };                                                          \
  struct __align__(align2) name##2 {                          \
    element x, y;                                             \
  };                                                          \
  struct __align__(align4) name##4 {                          \
    element x, y, z, w;                                       \
  };                                                          \
  inline constexpr emulated::Make<name##1> make_##name##1 {}; \
  inline constexpr emulated::Make<name##2> make_##name##2 {}; \
  inline constexpr emulated::Make<name##4> make_##name##4 {};
EMULATED_VECTORS(char, signed char, 2, 4)
EMULATED_VECTORS(uchar, unsigned char, 2, 4)
EMULATED_VECTORS(short, short, 4, 8)
EMULATED_VECTORS(ushort, unsigned short, 4, 8)
EMULATED_VECTORS(int, int, 8, 16)
EMULATED_VECTORS(uint, unsigned, 8, 16)
EMULATED_VECTORS(long, long, 16, 16)
EMULATED_VECTORS(ulong, unsigned long, 16, 16)
EMULATED_VECTORS(longlong, long long, 16, 16)
EMULATED_VECTORS(ulonglong, unsigned long long, 16, 16)
EMULATED_VECTORS(float, float, 8, 16)
EMULATED_VECTORS(double, double, 16, 16)
#undef EMULATED_VECTORS
struct int3 {
  int x, y, z;
};
struct float3 {
  float x, y, z;
};
struct double3 {
  double x, y, z;
};
constexpr uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
constexpr int3 make_int3(int x, int y, int z) { return {x, y, z}; }
constexpr float3 make_float3(float x, float y, float z) { return {x, y, z}; }
constexpr double3 make_double3(double x, double y, double z) { return {x, y, z}; }

namespace emulated {

/// The collective operations of a warp. All participating lanes must call the same one.
enum WarpOperation { WarpSync, WarpShuffle, WarpBallot, WarpAdd, WarpMin, WarpMax, WarpAnd, WarpOr, WarpXor };
enum BarrierOperation { BarrierSync, BarrierCount, BarrierAnd, BarrierOr };

/// The running thread and its synchronization. Code loaded at run time gets the address of the single
/// instance.
struct Device {
  uint3 thread, block;
  dim3 block_size, grid_size;
  unsigned linear;  ///< the thread's number within the block
  void* shared;
  int (*barrier)(BarrierOperation, int predicate);
  unsigned long long (*warp)(WarpOperation, unsigned mask, unsigned long long value, unsigned source);
  void (*trap)();
  void (*yield)();
  void* lane_operands;   ///< of the running block, for emulated_matrix_unit.h
  void* pending_copies;  ///< of the running block, for emulated_async_copy.h
};

#ifdef __CUDACC_RTC__
static Device* attached;
inline Device& device() { return *attached; }
#else
extern Device the_device;
inline Device& device() { return the_device; }
#endif

template <class T>
unsigned long long to_bits(T value) {
  static_assert((sizeof(T) == 4 || sizeof(T) == 8) && __is_trivially_copyable(T),
                "a shuffle takes 4 or 8 bytes");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
T from_bits(unsigned long long bits) {
  T value;
  __builtin_memcpy(static_cast<void*>(&value), &bits, sizeof(T));
  return value;
}
template <class T>
T shuffle(unsigned mask, T value, unsigned source) {
  return from_bits<T>(device().warp(WarpShuffle, mask, to_bits(value), source));
}
template <class To, class From>
To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From), "a cast of bits keeps the size");
  To result;
  __builtin_memcpy(&result, &value, sizeof(To));
  return result;
}

}  // namespace emulated

#ifdef __CUDACC_RTC__
#define threadIdx (::emulated::device().thread)
#define blockIdx (::emulated::device().block)
#define blockDim (::emulated::device().block_size)
#define gridDim (::emulated::device().grid_size)
#else
inline const uint3& threadIdx = emulated::the_device.thread;
inline const uint3& blockIdx = emulated::the_device.block;
inline const dim3& blockDim = emulated::the_device.block_size;
inline const dim3& gridDim = emulated::the_device.grid_size;
#endif
static constexpr int warpSize = 32;

/// The dynamic shared memory of the running block.
inline void* espalier_emulated_shared() { return emulated::device().shared; }

// Barriers.

inline void __syncthreads() { emulated::device().barrier(emulated::BarrierSync, 0); }
inline int __syncthreads_count(int p) { return emulated::device().barrier(emulated::BarrierCount, p); }
inline int __syncthreads_and(int p) { return emulated::device().barrier(emulated::BarrierAnd, p); }
inline int __syncthreads_or(int p) { return emulated::device().barrier(emulated::BarrierOr, p); }
inline void __threadfence_block() {}
inline void __threadfence() {}
inline void __threadfence_system() {}
inline void __trap() { emulated::device().trap(); }
/// Other threads run meanwhile.
inline void __nanosleep(unsigned) { emulated::device().yield(); }

// Warps.

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  emulated::device().warp(emulated::WarpSync, mask, 0, 0);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned first = emulated::device().linear & 31 & ~static_cast<unsigned>(width - 1);
  return emulated::shuffle(mask, value,
                           first + (static_cast<unsigned>(source) & static_cast<unsigned>(width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const unsigned lane = emulated::device().linear & 31, other = lane ^ static_cast<unsigned>(lanes);
  // Lanes of a later group cannot be read; those of an earlier one can.
  const unsigned end = (lane & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
  return emulated::shuffle(mask, value, other < end ? other : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32) {
  const unsigned lane = emulated::device().linear & 31;
  const unsigned end = (lane & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
  return emulated::shuffle(mask, value, lane + lanes < end ? lane + lanes : lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32) {
  const unsigned lane = emulated::device().linear & 31;
  const unsigned first = lane & ~static_cast<unsigned>(width - 1);
  return emulated::shuffle(mask, value, lane >= first + lanes ? lane - lanes : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(emulated::device().warp(emulated::WarpBallot, mask, predicate != 0, 0));
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate == 0) == 0; }
inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  return static_cast<unsigned>(emulated::device().warp(emulated::WarpAdd, mask, value, 0));
}
inline int __reduce_add_sync(unsigned mask, int value) {
  return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(value)));
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value) {
  return static_cast<unsigned>(emulated::device().warp(emulated::WarpMin, mask, value, 0));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return static_cast<unsigned>(emulated::device().warp(emulated::WarpMax, mask, value, 0));
}
// Signed numbers are ordered as unsigned ones once their sign bit is flipped.
inline int __reduce_min_sync(unsigned mask, int value) {
  return static_cast<int>(__reduce_min_sync(mask, static_cast<unsigned>(value) ^ 0x80000000u) ^ 0x80000000u);
}
inline int __reduce_max_sync(unsigned mask, int value) {
  return static_cast<int>(__reduce_max_sync(mask, static_cast<unsigned>(value) ^ 0x80000000u) ^ 0x80000000u);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value) {
  return static_cast<unsigned>(emulated::device().warp(emulated::WarpAnd, mask, value, 0));
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  return static_cast<unsigned>(emulated::device().warp(emulated::WarpOr, mask, value, 0));
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value) {
  return static_cast<unsigned>(emulated::device().warp(emulated::WarpXor, mask, value, 0));
}

// Atomics: device threads run in turn, so plain operations are atomic among them.

namespace emulated {
template <class T>
struct Plain {
  using Type = T;
};
/// T, but no argument says what it is.
template <class T>
using Same = typename Plain<T>::Type;
template <class T, class... Types>
inline constexpr bool is_one_of = (__is_same(T, Types) || ...);

/// Writes the new value and returns the old one.
template <class T>
T replace(T* address, Same<T> value) {
  const T old = *address;
  *address = value;
  return old;
}
}  // namespace emulated

template <class T>
T atomicMin(T* address, emulated::Same<T> value) {
  static_assert(emulated::is_one_of<T, int, unsigned, long long, unsigned long long>);
  return emulated::replace(address, value < *address ? value : *address);
}
template <class T>
T atomicMax(T* address, emulated::Same<T> value) {
  static_assert(emulated::is_one_of<T, int, unsigned, long long, unsigned long long>);
  return emulated::replace(address, value > *address ? value : *address);
}
template <class T>
T atomicAnd(T* address, emulated::Same<T> value) {
  static_assert(emulated::is_one_of<T, int, unsigned, unsigned long long>);
  return emulated::replace(address, *address & value);
}
template <class T>
T atomicOr(T* address, emulated::Same<T> value) {
  static_assert(emulated::is_one_of<T, int, unsigned, unsigned long long>);
  return emulated::replace(address, *address | value);
}
template <class T>
T atomicXor(T* address, emulated::Same<T> value) {
  static_assert(emulated::is_one_of<T, int, unsigned, unsigned long long>);
  return emulated::replace(address, *address ^ value);
}
template <class T>
T atomicExch(T* address, emulated::Same<T> value) {
  static_assert(emulated::is_one_of<T, int, unsigned, unsigned long long, float>);
  return emulated::replace(address, value);
}
template <class T>
T atomicCAS(T* address, emulated::Same<T> compare, emulated::Same<T> value) {
  static_assert(emulated::is_one_of<T, unsigned short, int, unsigned, unsigned long long>);
  return emulated::replace(address, *address == compare ? value : *address);
}
template <class T>
T atomicAdd(T* address, emulated::Same<T> value) {
  static_assert(emulated::is_one_of<T, unsigned, unsigned long long, float, double>);
  return emulated::replace(address, *address + value);
}
inline unsigned atomicSub(unsigned* address, unsigned value) {
  return emulated::replace(address, *address - value);
}
inline unsigned atomicInc(unsigned* address, unsigned value) {
  return emulated::replace(address, *address >= value ? 0u : *address + 1u);
}
inline unsigned atomicDec(unsigned* address, unsigned value) {
  return emulated::replace(address, *address == 0u || *address > value ? value : *address - 1u);
}
inline int atomicAdd(int* address, int value) {
  const int old = *address;
  *address = static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value));
  return old;
}
inline int atomicSub(int* address, int value) {
  const int old = *address;
  *address = static_cast<int>(static_cast<unsigned>(old) - static_cast<unsigned>(value));
  return old;
}

// Loads and stores with hints.

template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
T __ldca(const T* address) {
  return *address;
}
template <class T>
T __ldcg(const T* address) {
  return *address;
}
template <class T>
void __stcs(T* address, T value) {
  *address = value;
}
template <class T>
void __stcg(T* address, T value) {
  *address = value;
}

// Bits.

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline unsigned __brev(unsigned x) {
  unsigned result = 0;
  for (int bit = 0; bit < 32; ++bit) result |= (x >> bit & 1u) << (31 - bit);
  return result;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((1ull * a * b) >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>((1ll * a * b) >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ typedef unsigned __int128 Wide;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}
inline long long __mul64hi(long long a, long long b) {
  __extension__ typedef __int128 Wide;
  return static_cast<long long>((static_cast<Wide>(a) * b) >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(((static_cast<unsigned long long>(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31));
}
inline int __float_as_int(float x) { return emulated::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return emulated::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return emulated::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return emulated::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return emulated::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return emulated::bit_cast<double>(x); }

#include "emulated_math.h"
