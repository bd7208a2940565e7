// The transforms of Winograd's minimal filtering algorithms F(4×4, 3×3) and F(3×3, 4×4). Lavin and Gray, Fast
// algorithms for convolutional neural networks, 2016: a tile d of 6×6 elements, correlated with a kernel g,
// is Aᵀ [(G g Gᵀ) ⊙ (Bᵀ d B)] A.
#pragma once
#include <cstdint>

namespace espalier::winograd {

inline constexpr int tile_side = 6, tile_elements = 36, output_side = 4, kernel_side = 3;

// The points are 0, p, -p, q, -q and ∞. Rounding errors are half of those with 1 and 2, the points of the
// paper.
inline constexpr float p = 0.625F, q = 1.5F, p2 = p * p, q2 = q * q;
// One over the product of the differences to all other points.
inline constexpr float at_0 = 1 / (p2 * q2), at_p = 1 / (2 * p2 * (p2 - q2)), at_q = 1 / (2 * q2 * (q2 - p2));

// Each has `in` and `out` numbers, or vectors of numbers.

/// Bᵀ, of both algorithms.
struct DataTransform {
  static constexpr int in = 6, out = 6;
  template <class V>
  [[gnu::always_inline]] static void apply(const V (&d)[in], V (&t)[out]) {
    const V a = d[4] - q2 * d[2], b = d[3] - q2 * d[1], c = d[4] - p2 * d[2], e = d[3] - p2 * d[1];
    t[0] = p2 * q2 * d[0] - (p2 + q2) * d[2] + d[4];
    t[1] = a + p * b;
    t[2] = a - p * b;
    t[3] = c + q * e;
    t[4] = c - q * e;
    t[5] = p2 * q2 * d[1] - (p2 + q2) * d[3] + d[5];
  }
};

/// G of F(4, 3).
struct KernelTransform {
  static constexpr int in = 3, out = 6;
  template <class V>
  [[gnu::always_inline]] static void apply(const V (&g)[in], V (&t)[out]) {
    const V a = at_p * g[0] + at_p * p2 * g[2], b = at_p * p * g[1], c = at_q * g[0] + at_q * q2 * g[2],
            e = at_q * q * g[1];
    t[0] = at_0 * g[0];
    t[1] = a + b;
    t[2] = a - b;
    t[3] = c + e;
    t[4] = c - e;
    t[5] = g[2];
  }
};

/// Aᵀ of F(4, 3).
struct OutputTransform {
  static constexpr int in = 6, out = 4;
  template <class V>
  [[gnu::always_inline]] static void apply(const V (&m)[in], V (&t)[out]) {
    const V a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], e = m[3] - m[4];
    t[0] = m[0] + a + c;
    t[1] = p * b + q * e;
    t[2] = p2 * a + q2 * c;
    t[3] = p2 * p * b + q2 * q * e + m[5];
  }
};

/// G of F(3, 4), whose kernels are the gradients of y.
struct GradientTransform {
  static constexpr int in = 4, out = 6;
  template <class V>
  [[gnu::always_inline]] static void apply(const V (&g)[in], V (&t)[out]) {
    const V a = at_p * g[0] + at_p * p2 * g[2], b = at_p * p * g[1] + at_p * p2 * p * g[3],
            c = at_q * g[0] + at_q * q2 * g[2], e = at_q * q * g[1] + at_q * q2 * q * g[3];
    t[0] = at_0 * g[0];
    t[1] = a + b;
    t[2] = a - b;
    t[3] = c + e;
    t[4] = c - e;
    t[5] = g[3];
  }
};

/// Aᵀ of F(3, 4).
struct KernelGradientTransform {
  static constexpr int in = 6, out = 3;
  template <class V>
  [[gnu::always_inline]] static void apply(const V (&m)[in], V (&t)[out]) {
    const V a = m[1] + m[2], b = m[1] - m[2], c = m[3] + m[4], e = m[3] - m[4];
    t[0] = m[0] + a + c;
    t[1] = p * b + q * e;
    t[2] = p2 * a + q2 * c + m[5];
  }
};

/// F of the columns and then of the rows of a square. `load(k, v)` sets v to its element k, row by row, and
/// `store(k, v)` takes that of the result.
template <class F, class V, class Load, class Store>
[[gnu::always_inline]] inline void transform_square(const Load& load, const Store& store) {
  V half[F::out][F::in];
#pragma GCC unroll 6
  for (int column = 0; column < F::in; ++column) {
    V from[F::in], to[F::out];
#pragma GCC unroll 6
    for (int row = 0; row < F::in; ++row) load(row * F::in + column, from[row]);
    F::apply(from, to);
#pragma GCC unroll 6
    for (int row = 0; row < F::out; ++row) half[row][column] = to[row];
  }
#pragma GCC unroll 6
  for (int row = 0; row < F::out; ++row) {
    V to[F::out];
    F::apply(half[row], to);
#pragma GCC unroll 6
    for (int column = 0; column < F::out; ++column) store(row * F::out + column, to[column]);
  }
}

}  // namespace espalier::winograd
