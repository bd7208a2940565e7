// Loops written with vectors of a known width, for each instruction set.
#pragma once
#include <utility>

#include "espalier/core/cpu/vectorize.h"

namespace espalier {

/// A vector of `bytes` bytes.
template <class T, int bytes>
struct VectorOf {
  typedef T Vector __attribute__((vector_size(bytes)));
  static constexpr int count = bytes / static_cast<int>(sizeof(T));
};

namespace detail {

template <class V>
struct [[gnu::packed, gnu::may_alias]] UnalignedLanes {
  V lanes;
};

}  // namespace detail

/// Elements anywhere in memory as a vector, and back. Vectors are not returned, since functions of other
/// instruction sets would return them elsewhere.
template <class T, class V>
[[gnu::always_inline]] inline void read_lanes(const T* from, V& to) {
  to = reinterpret_cast<const detail::UnalignedLanes<V>*>(from)->lanes;
}
template <class T, class V>
[[gnu::always_inline]] inline void write_lanes(const V& from, T* to) {
  reinterpret_cast<detail::UnalignedLanes<V>*>(to)->lanes = from;
}

namespace detail {

/// Exchanges the blocks of `step` lanes beside the diagonal: those of a on the right and those of b on the
/// left.
template <int step, class V, int... i>
[[gnu::always_inline]] inline void exchange_blocks(V& a, V& b, std::integer_sequence<int, i...>) {
  constexpr int count = sizeof...(i);
  const V left = __builtin_shufflevector(a, b, ((i & step) ? count + i - step : i)...);
  b = __builtin_shufflevector(a, b, ((i & step) ? count + i : i + step)...);
  a = left;
}

template <int step, class V, int count>
[[gnu::always_inline]] inline void transpose_blocks(V (&x)[count]) {
  if constexpr (step < count) {
#pragma GCC unroll 16
    for (int i = 0; i < count; ++i)
      if (!(i & step)) exchange_blocks<step>(x[i], x[i + step], std::make_integer_sequence<int, count>());
    transpose_blocks<2 * step>(x);
  }
}

}  // namespace detail

/// The transpose of a square matrix, whose rows are vectors of `count` lanes.
template <class V, int count>
[[gnu::always_inline]] inline void transpose_lanes(V (&x)[count]) {
  detail::transpose_blocks<1>(x);
}

/// Runs `job.run<bytes>()`, a template marked `always_inline`, with the width of the vectors of the level
/// that is run. Jobs are trivially copyable.
template <class Job>
void run_in_lanes(const Job& job) {
  if constexpr (detail::compiled_for_levels) {
    switch (vector_level()) {
      case VectorLevel::avx512:
        return detail::run_avx512([=]() __attribute__((always_inline)) { job.template run<64>(); });
      case VectorLevel::avx2:
        return detail::run_avx2([=]() __attribute__((always_inline)) { job.template run<32>(); });
      case VectorLevel::baseline: break;
    }
  }
  job.template run<16>();
}

}  // namespace espalier
