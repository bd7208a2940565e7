// The row of a pointwise function of one operand.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "espalier/core/cpu/bounded_rows.h"
#include "espalier/core/cpu/row_blocks.h"
#include "espalier/core/cpu/vectorize.h"

namespace espalier::detail {

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
