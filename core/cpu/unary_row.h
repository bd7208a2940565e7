// The row of a pointwise function of one operand.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "espalier/core/cpu/row_blocks.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/scalar_math.h"

namespace espalier::detail {

/// A functor whose `bounded` computes the same where |x| < `bound`, with loops that vectorize.
template <class F, class A>
concept HasBounded = requires(A x) {
  { F::bounded(x) } -> std::same_as<A>;
};

/// out[i] = F()(a[i]): by F::bounded in blocks of which all elements are within the bound.
template <class F, class A>
void bounded_row(int64_t n, A* out, const A* a) {
  vectorized([=]() __attribute__((always_inline)) {
    constexpr int64_t block = 1024;
    for (int64_t begin = 0; begin < n; begin += block) {
      const int64_t end = std::min(n, begin + block);
      int beyond = 0;
      for (int64_t i = begin; i < end; ++i) beyond |= !(math::absolute(a[i]) < F::bound);
      if (beyond) {
        for (int64_t i = begin; i < end; ++i) out[i] = F()(a[i]);
      } else {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) out[i] = F::bounded(a[i]);
      }
    }
  });
}

/// out[i] = F()(a[i · sa]). The output may be the operand, element for element, which the compiler must not
/// treat as a dependence (ivdep). What only integers take part in runs baseline code, since it is rarely
/// critical.
template <class F, class R, class A>
void unary_row(int64_t n, void* to, const void* from, int64_t sa) {
  R* out = static_cast<R*>(to);
  const A* a = static_cast<const A*>(from);
  if constexpr (!std::is_floating_point_v<A> && !std::is_floating_point_v<R>) {
    for (int64_t i = 0; i < n; ++i) out[i] = F()(a[i * sa]);
  } else if (sa == 1 && n >= shortest<F>) {
    if constexpr (HasBounded<F, A> && std::is_same_v<R, A>) return bounded_row<F>(n, out, a);
    vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) out[i] = F()(a[i]);
    });
  } else if constexpr (!is_costly<F>) {
    for (int64_t i = 0; i < n; ++i) out[i] = F()(a[i * sa]);
  } else if (n < very_few) {
    for (int64_t i = 0; i < n; ++i, not_vectorized()) out[i] = F()(a[i * sa]);
  } else if (DenseBlocks<A> blocks(a, sa); n < few) {
    R filled[few];
    unary_row<F, R, A>(few, filled, blocks.filled_up(n), 1);
    std::copy(filled, filled + n, out);
  } else {
    for (int64_t begin = 0; begin < n; begin += row_block) {
      const int64_t count = std::min(row_block, n - begin);
      unary_row<F, R, A>(count, out + begin, blocks.at(begin, count), 1);
    }
  }
}

}  // namespace espalier::detail
