#include "espalier/ops/attention/panel_product.h"

#include "espalier/core/cpu/vectorize.h"

namespace espalier {

namespace {

template <class T, int bytes>
struct Lanes {
  typedef T Vector __attribute__((vector_size(bytes), aligned(alignof(T)), may_alias));
  static constexpr int count = bytes / static_cast<int>(sizeof(T));
};

/// `rows` rows of c, and `width` vectors of each, which stay in registers.
template <class T, int bytes, int rows, int width>
[[gnu::always_inline]] inline void block(const PanelProduct<T>& p, const T* a, const T* b, T* c) {
  using Vector = typename Lanes<T, bytes>::Vector;
  constexpr int count = Lanes<T, bytes>::count;
  Vector sum[rows][width];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int w = 0; w < width; ++w)
      sum[r][w] = p.add ? *reinterpret_cast<const Vector*>(c + r * p.ldc + w * count) : Vector{};
  for (int64_t k = 0; k < p.k; ++k) {
    Vector right[width];
#pragma GCC unroll 4
    for (int w = 0; w < width; ++w) right[w] = *reinterpret_cast<const Vector*>(b + w * count);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const T left = a[r * p.a_row];
#pragma GCC unroll 4
      for (int w = 0; w < width; ++w) sum[r][w] += left * right[w];
    }
    a += p.a_step;
    b += p.ldb;
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int w = 0; w < width; ++w) *reinterpret_cast<Vector*>(c + r * p.ldc + w * count) = sum[r][w];
}

/// All rows of one panel of columns.
template <class T, int bytes, int rows, int width>
[[gnu::always_inline]] inline void panel(const PanelProduct<T>& p, int64_t column) {
  int64_t m = 0;
  const T* b = p.b + column;
  for (; m + rows <= p.m; m += rows)
    block<T, bytes, rows, width>(p, p.a + m * p.a_row, b, p.c + m * p.ldc + column);
  if (m + 4 <= p.m) {
    block<T, bytes, 4, width>(p, p.a + m * p.a_row, b, p.c + m * p.ldc + column);
    m += 4;
  }
  if (m + 2 <= p.m) {
    block<T, bytes, 2, width>(p, p.a + m * p.a_row, b, p.c + m * p.ldc + column);
    m += 2;
  }
  if (m < p.m) block<T, bytes, 1, width>(p, p.a + m * p.a_row, b, p.c + m * p.ldc + column);
}

// 32 registers hold 24 sums, 16 hold 12.
template <class T, int bytes>
[[gnu::always_inline]] inline void panels(const PanelProduct<T>& p) {
  constexpr int64_t count = Lanes<T, bytes>::count;
  int64_t column = 0;
  if constexpr (bytes == 64)
    for (; column + 4 * count <= p.n; column += 4 * count) panel<T, bytes, 6, 4>(p, column);
  for (; column + 2 * count <= p.n; column += 2 * count) panel<T, bytes, 6, 2>(p, column);
  if (column < p.n) panel<T, bytes, 6, 1>(p, column);
}

}  // namespace

template <class T>
void multiply(const PanelProduct<T>& product) {
  const PanelProduct<T> p = product;
  if constexpr (detail::compiled_for_levels) {
    switch (vector_level()) {
      case VectorLevel::avx512:
        return detail::run_avx512([=]() __attribute__((always_inline)) { panels<T, 64>(p); });
      case VectorLevel::avx2:
        return detail::run_avx2([=]() __attribute__((always_inline)) { panels<T, 32>(p); });
      case VectorLevel::baseline: break;
    }
  }
  panels<T, 16>(p);
}

template void multiply(const PanelProduct<float>& product);
template void multiply(const PanelProduct<double>& product);

}  // namespace espalier
