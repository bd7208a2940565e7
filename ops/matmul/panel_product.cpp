#include "espalier/ops/matmul/panel_product.h"

#include <type_traits>

#include "espalier/core/cpu/lanes.h"

namespace espalier {

namespace {

/// `rows` rows of c, and `width` vectors of each, which stay in registers.
template <class T, int bytes, int rows, int width>
[[gnu::always_inline]] inline void block(const PanelProduct<T>& p, const T* a, const T* b, T* c) {
  using Vector = typename VectorOf<T, bytes>::Vector;
  constexpr int count = VectorOf<T, bytes>::count;
  Vector sum[rows][width];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int w = 0; w < width; ++w) {
      sum[r][w] = Vector{};
      if (p.add) read_lanes(c + r * p.ldc + w * count, sum[r][w]);
    }
  for (int64_t k = 0; k < p.k; ++k) {
    Vector right[width];
#pragma GCC unroll 4
    for (int w = 0; w < width; ++w) read_lanes(b + w * count, right[w]);
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
    for (int w = 0; w < width; ++w) write_lanes(sum[r][w], c + r * p.ldc + w * count);
}

/// All rows of one panel of columns.
template <class T, int bytes, int rows, int width>
[[gnu::always_inline]] inline void panel(const PanelProduct<T>& p, int64_t column) {
  const T* const b = p.b + column;
  int64_t m = 0;
  const auto next = [&]<int count>(std::integral_constant<int, count>) __attribute__((always_inline)) {
    block<T, bytes, count, width>(p, p.a + m * p.a_row, b, p.c + m * p.ldc + column);
    m += count;
  };
  const auto left = [&] { return p.m - m; };
  // What is left is divided into blocks of alike sizes: in a block of one row, few sums wait for one another.
  while (left() == rows || left() > rows + 2) next(std::integral_constant<int, rows>());
  while (left() == 4 || left() > 5) next(std::integral_constant<int, 4>());
  if (left() == 3 || left() == 5) next(std::integral_constant<int, 3>());
  if (left() == 2) next(std::integral_constant<int, 2>());
  if (left() == 1) next(std::integral_constant<int, 1>());
}

template <class T>
struct Panels {
  PanelProduct<T> p;

  // 32 registers hold 24 sums, 16 hold 12.
  template <int bytes>
  [[gnu::always_inline]] void run() const {
    constexpr int64_t count = VectorOf<T, bytes>::count;
    int64_t column = 0;
    if constexpr (bytes == 64)
      for (; column + 4 * count <= p.n; column += 4 * count) panel<T, bytes, 6, 4>(p, column);
    for (; column + 2 * count <= p.n; column += 2 * count) panel<T, bytes, 6, 2>(p, column);
    if (column < p.n) panel<T, bytes, 6, 1>(p, column);
  }
};

}  // namespace

template <class T>
void multiply(const PanelProduct<T>& product) {
  run_in_lanes(Panels<T>{product});
}

template void multiply(const PanelProduct<float>& product);
template void multiply(const PanelProduct<double>& product);

}  // namespace espalier
