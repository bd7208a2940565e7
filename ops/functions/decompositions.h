// Systems of linear equations, and decompositions of matrices. All take matrices along the last two axes,
// with any leading axes, of reals; 16-bit elements are computed in float32 and rounded. On a GPU they are
// computed by cuSOLVER and meet the host, so steps with them are not captured as graphs, and systems of
// equations have at most 8 leading axes (UnsupportedError).
#pragma once
#include <cstdint>
#include <optional>

#include "espalier/core/error.h"
#include "espalier/core/variable.h"

namespace espalier {

// Gradients are those of PyTorch. They use the factors that the value was computed with.

/// The x with a · x = b: a [..., n, n] and b [..., n, k] or a vector [n], with leading axes broadcast. Throws
/// LinAlgError for a singular matrix.
Variable solve(const Operand& a, const Operand& b);
struct TriangularOptions {
  bool upper = false;          ///< which triangle of `a` is read
  bool transposed = false;     ///< solves aᵀ · x = b
  bool unit_diagonal = false;  ///< takes the diagonal for ones, without reading it
};
/// The same for a triangular matrix. Throws LinAlgError for a zero on the diagonal.
Variable triangular_solve(const Operand& a, const Operand& b, const TriangularOptions& options = {});
/// a⁻¹. Throws LinAlgError for a singular matrix.
Variable inverse(const Operand& a);
/// a multiplied by itself n times; for negative n the inverse is. [..., n, n].
Variable matrix_power(const Operand& a, int64_t n);

/// The determinant, [...]. Its gradient throws LinAlgError for a singular matrix.
Variable det(const Operand& a);
struct LogDeterminant {
  Variable sign;     ///< −1, 0 or 1
  Variable log_abs;  ///< −∞ for a singular matrix
};
/// The determinant as sign · exp(log_abs), which does not overflow.
LogDeterminant slogdet(const Operand& a);

/// The lower triangular L with L · Lᵀ = a, or its transpose (`upper`). Only the lower triangle of the
/// symmetric `a` is read; the gradient is symmetric. Throws LinAlgError unless `a` is positive definite;
/// a NaN or an infinity in that triangle makes it not so.
Variable cholesky(const Operand& a, bool upper = false);

/// The x with a · x = b by the factor that cholesky(a, upper) gave: b [..., n, k] or a vector [n], with
/// leading axes broadcast. Throws LinAlgError for a zero on the diagonal of the factor.
Variable cholesky_solve(const Operand& b, const Operand& factor, bool upper = false);

struct QrFactors {
  Variable q;  ///< [..., m, k], k = min(m, n): orthonormal columns
  Variable r;  ///< [..., k, n]: upper triangular
};
/// a = q · r. The gradient needs linearly independent columns (or, if n > m, first m columns).
QrFactors qr(const Operand& a);

struct SvdFactors {
  Variable u;   ///< [..., m, k], k = min(m, n): orthonormal columns
  Variable s;   ///< [..., k]: the singular values, in descending order
  Variable vt;  ///< [..., k, n]: orthonormal rows
};
/// a = u · diag(s) · vt. Gradients through `u` and `vt` need singular values that differ; signs of singular
/// vectors are arbitrary.
SvdFactors svd(const Operand& a);
/// The singular values alone, in descending order; the gradient computes the vectors.
Variable svdvals(const Operand& a);

struct EighFactors {
  Variable values;   ///< [..., n], in ascending order
  Variable vectors;  ///< [..., n, n]: orthonormal columns
};
/// a = vectors · diag(values) · vectorsᵀ for a symmetric `a`, of which only the lower triangle is read. The
/// gradient is symmetric; through the vectors it needs eigenvalues that differ.
EighFactors eigh(const Operand& a);
Variable eigvalsh(const Operand& a);

/// The x that minimizes ‖a · x − b‖: a [..., m, n] and b [..., m, k] or a vector [m]; for n > m the shortest
/// of them. `a` has full rank. Throws LinAlgError where a factor is singular.
Variable lstsq(const Operand& a, const Operand& b);
/// The pseudoinverse of Moore and Penrose, [..., n, m]. Singular values up to `rtol` times the largest count
/// as 0; by default max(m, n) · ε of the dtype. The gradient needs no distinct singular values, only a rank
/// that does not change.
Variable pinv(const Operand& a, std::optional<double> rtol = {});
/// How many singular values (int64, [...]) are above `rtol` times the largest, as in pinv.
Variable matrix_rank(const Operand& a, std::optional<double> rtol = {});

}  // namespace espalier
