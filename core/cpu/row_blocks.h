// Blocks of operands that do not lie one behind the other, for the rows of costly pointwise functions.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "espalier/core/scalar.h"

namespace espalier {

namespace detail {

inline constexpr int64_t few = 16;
inline constexpr int64_t row_block = 256;  // elements that stay in the innermost cache

template <class F>
inline constexpr bool is_costly = std::is_base_of_v<scalar::Costly, F>;

/// The shortest row that is worth the vector code: short ones of costly functors are filled up to it.
template <class F>
inline constexpr int64_t shortest = is_costly<F> ? few : few + 1;

/// The elements of an operand of any step, a block at a time.
template <class T>
class DenseBlocks {
 public:
  DenseBlocks(const T* from, int64_t step) : from_(from), step_(step) {}
  /// `n` elements from `begin` on: where they are, or copied.
  const T* at(int64_t begin, int64_t n) {
    if (step_ == 1) return from_ + begin;
    if (step_ != 0 || begin == 0) copy(begin, n, n);
    return room_;
  }
  /// The first `n`, of which the last one is repeated until they are `few`.
  const T* filled_up(int64_t n) {
    copy(0, n, few);
    return room_;
  }

 private:
  [[gnu::noinline]] void copy(int64_t begin, int64_t n, int64_t size) {
    if (step_ == 0) return std::fill(room_, room_ + size, *from_);
    for (int64_t i = 0; i < n; ++i) room_[i] = from_[(begin + i) * step_];
    for (int64_t i = n; i < size; ++i) room_[i] = room_[n - 1];
  }

  const T* from_;
  int64_t step_;
  T room_[row_block];
};

/// Rows shorter than this are computed as the loop is written.
inline constexpr int64_t very_few = 4;
[[gnu::always_inline]] inline void not_vectorized() { asm volatile(""); }

}  // namespace detail

}  // namespace espalier
