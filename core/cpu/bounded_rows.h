// Rows of functors that vectorize for common operands only.
#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/scalar_math.h"

namespace espalier::detail {

/// A functor whose `bounded` computes the same where |x| < `bound`, or where `within` says so, with loops
/// that vectorize.
template <class F, class A>
concept HasBounded = requires(A x) {
  { F::bounded(x) } -> std::same_as<A>;
};
/// The same of two operands, with `within`.
template <class F, class A>
concept HasBoundedPairs = requires(A x) {
  { F::bounded(x, x) } -> std::same_as<A>;
  { F::within(x, x) } -> std::same_as<bool>;
};

template <class F, class A>
[[gnu::always_inline]] inline bool is_bounded(A x) {
  if constexpr (requires { F::bound; })
    return math::absolute(x) < F::bound;
  else
    return F::within(x);
}

/// out[i] = F()(a[i]): by F::bounded in blocks of which all elements are within the bound.
template <class F, class A>
void bounded_row(int64_t n, A* out, const A* a) {
  vectorized([=]() __attribute__((always_inline)) {
    constexpr int64_t block = 1024;
    for (int64_t begin = 0; begin < n; begin += block) {
      const int64_t end = std::min(n, begin + block);
      int beyond = 0;
      for (int64_t i = begin; i < end; ++i) beyond |= !is_bounded<F>(a[i]);
      if (beyond) {
        for (int64_t i = begin; i < end; ++i) out[i] = F()(a[i]);
      } else {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) out[i] = F::bounded(a[i]);
      }
    }
  });
}

/// The same of a[i] and b[i], or of a[i] and the one element *b if `repeats` says so.
template <class F, bool repeats, class A>
void bounded_row_of_pairs(int64_t n, A* out, const A* a, const A* b) {
  vectorized([=]() __attribute__((always_inline)) {
    constexpr int64_t block = 1024;
    const A one = *b;
    for (int64_t begin = 0; begin < n; begin += block) {
      const int64_t end = std::min(n, begin + block);
      int beyond = 0;
      for (int64_t i = begin; i < end; ++i) beyond |= !F::within(a[i], repeats ? one : b[i]);
      if (beyond) {
        for (int64_t i = begin; i < end; ++i) out[i] = F()(a[i], repeats ? one : b[i]);
      } else {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) out[i] = F::bounded(a[i], repeats ? one : b[i]);
      }
    }
  });
}

}  // namespace espalier::detail
