// Matrices for tests of decompositions, and references by plain loops.
#pragma once
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "espalier/ops/linalg/linalg_ops.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace espalier::testing {

/// Well conditioned: numbers, and `shift` on the diagonal.
inline Tensor regular(const Shape& shape, uint64_t which = 0, double shift = 4) {
  const Variable x = numbers(shape, -1, 1, which);
  return (x + eye_like(x) * shift).value();
}
/// x · xᵀ + 1, which is symmetric and positive definite whatever x is.
inline Variable definite(const Variable& x) {
  return matmul(x, transpose(x)) + eye_like(matmul(x, transpose(x)));
}
inline Variable symmetric(const Variable& x) { return x + transpose(x); }

/// The product of the last two axes, for references.
inline Array product(const Array& a, const Array& b) {
  const auto rank = static_cast<int64_t>(a.shape.rank());
  std::vector<int64_t> sizes(a.shape.begin(), a.shape.end());
  const int64_t inner = sizes.back();
  sizes.back() = b.shape[-1];
  return Array(Shape(sizes), [&](const Index& i) {
    double sum = 0;
    for (int64_t k = 0; k < inner; ++k) {
      Index left = i, right = i;
      left[static_cast<size_t>(rank - 1)] = right[static_cast<size_t>(rank - 2)] = k;
      sum += a(left) * b(right);
    }
    return sum;
  });
}
/// Gauss' elimination with pivots for each matrix: [a | b] to [1 | a⁻¹b]; returns the determinants, too.
inline std::pair<Array, Array> eliminated(const Array& a, const Array& b) {
  const auto rank = static_cast<int64_t>(a.shape.rank());
  const int64_t n = a.shape[-1], k = b.shape[-1];
  const auto nn = static_cast<size_t>(n * n), nk = static_cast<size_t>(n * k);
  std::vector<int64_t> leading(a.shape.begin(), a.shape.end() - 2);
  Array x(b.shape, [&](const Index& i) { return b(i); });
  std::vector<double> whole = a.values, determinants;
  for (size_t m = 0; m < whole.size() / nn; ++m) {
    double* p = whole.data() + m * nn;
    double* q = x.values.data() + m * nk;
    double det = 1;
    for (int64_t c = 0; c < n; ++c) {
      int64_t best = c;
      for (int64_t r = c; r < n; ++r)
        if (std::abs(p[r * n + c]) > std::abs(p[best * n + c])) best = r;
      if (best != c) {
        det = -det;
        for (int64_t j = 0; j < n; ++j) std::swap(p[c * n + j], p[best * n + j]);
        for (int64_t j = 0; j < k; ++j) std::swap(q[c * k + j], q[best * k + j]);
      }
      const double pivot = p[c * n + c];
      det *= pivot;
      for (int64_t j = 0; j < n; ++j) p[c * n + j] /= pivot;
      for (int64_t j = 0; j < k; ++j) q[c * k + j] /= pivot;
      for (int64_t r = 0; r < n; ++r) {
        if (r == c) continue;
        const double factor = p[r * n + c];
        for (int64_t j = 0; j < n; ++j) p[r * n + j] -= factor * p[c * n + j];
        for (int64_t j = 0; j < k; ++j) q[r * k + j] -= factor * q[c * k + j];
      }
    }
    determinants.push_back(det);
  }
  (void)rank;
  Array dets(Shape(leading), [](const Index&) { return 0.0; });
  dets.values = determinants;
  return {x, dets};
}
inline Array identity(const Shape& shape) {
  return Array(shape, [](const Index& i) { return i[i.size() - 1] == i[i.size() - 2] ? 1.0 : 0.0; });
}
inline Array same(const std::vector<Array>& in) { return in[0]; }

/// Compares with the operand; so inputs broadcast by strides give no singular matrices.
inline OpCase of_matrix(std::string name, std::function<Variable(const Variable&)> f, Tensor input,
                        Reference reference) {
  return {.name = std::move(name),
          .op = [f = std::move(f)](const Variables& x) { return f(x[0]); },
          .inputs = {std::move(input)},
          .reference = std::move(reference),
          .tolerance = 1e-10,
          .tolerance32 = 2e-4,
          .roundings = 0};
}

}  // namespace espalier::testing
