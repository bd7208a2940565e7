// Vectors of adjacent elements.
#pragma once
#include <cstdint>

#include "espalier/core/cuda/runtime.h"

namespace espalier::cu {

/// The largest access of a thread.
inline constexpr int vector_bytes = 16;

template <class T, int V>
struct Vector {
  T element[V];
};

/// An unsigned type of `bytes`.
template <int bytes>
struct Word;
template <>
struct Word<16> {
  using type = uint4;
};
template <>
struct Word<8> {
  using type = uint64_t;
};
template <>
struct Word<4> {
  using type = uint32_t;
};
template <>
struct Word<2> {
  using type = uint16_t;
};
template <>
struct Word<1> {
  using type = uint8_t;
};

/// An unsigned type of T's size.
template <class T>
using Bits = typename Word<sizeof(T)>::type;

/// Reads a vector in words of `bytes`, to which the address is aligned.
template <int bytes, int V, class T>
__device__ __forceinline__ Vector<T, V> read_words(const T* from) {
  using W = typename Word<bytes>::type;
  struct Words {
    W word[V * sizeof(T) / bytes];
  } words;
#pragma unroll
  for (int i = 0; i < static_cast<int>(V * sizeof(T) / bytes); ++i)
    words.word[i] = reinterpret_cast<const W*>(from)[i];
  return __builtin_bit_cast(Vector<T, V>, words);
}
template <int bytes, int V, class T>
__device__ __forceinline__ void write_words(T* to, const Vector<T, V>& x) {
  using W = typename Word<bytes>::type;
  struct Words {
    W word[V * sizeof(T) / bytes];
  };
  const Words words = __builtin_bit_cast(Words, x);
#pragma unroll
  for (int i = 0; i < static_cast<int>(V * sizeof(T) / bytes); ++i)
    reinterpret_cast<W*>(to)[i] = words.word[i];
}
/// Reads a vector at once; the address is aligned to its size.
template <int V, class T>
__device__ __forceinline__ Vector<T, V> read_vector(const T* from) {
  return read_words<V * sizeof(T), V>(from);
}
template <int V, class T>
__device__ __forceinline__ void write_vector(T* to, const Vector<T, V>& x) {
  write_words<V * sizeof(T), V>(to, x);
}

}  // namespace espalier::cu
