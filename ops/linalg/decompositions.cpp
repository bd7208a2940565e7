// Systems of equations and decompositions, made of the ops of this folder.
#include "espalier/ops/functions/decompositions.h"

#include <algorithm>
#include <limits>

#include "espalier/ops/linalg/factor_ops.h"
#include "espalier/ops/linalg/linalg_ops.h"
#include "espalier/ops/linalg/lu_ops.h"
#include "espalier/ops/linalg/matrix_op.h"
#include "espalier/ops/linalg/pinv.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// An operand that is a matrix or a batch of them, in float32 at least; and its results as it was.
class MatrixOperand {
 public:
  MatrixOperand(const Operand& x, std::string_view op, bool square) : given_(x.defined(op)) {
    check_matrix({given_.dtype(), given_.shape()}, op, square);
    value_ = is_half(given_.dtype()) ? cast(given_, float32) : given_;
  }
  const Variable& operator*() const { return value_; }
  Variable back(const Variable& result) const {
    return is_half(given_.dtype()) && is_real(result.dtype()) ? cast(result, given_.dtype()) : result;
  }
  int64_t rows() const { return value_.shape()[-2]; }
  int64_t columns() const { return value_.shape()[-1]; }

 private:
  Variable given_, value_;
};

/// Runs `f` under the user's line.
template <class F>
auto decomposed(const Operand& a, F&& f,
                const std::source_location& function = std::source_location::current()) {
  const CallScope scope(a.where(), {}, function);
  return located(a.where(), f);
}

/// Calls f(b) with the right side of a system with `rows` equations, as a matrix; the solution has its form.
template <class F>
Variable with_right_side(const MatrixOperand& a, const Operand& b, std::string_view op, F&& f) {
  const Variable& given = b.defined(op);
  check_same_dtype({a.back(*a).dtype(), (*a).shape()}, {given.dtype(), given.shape()}, op);
  if (given.rank() == 0 || given.shape()[given.rank() == 1 ? -1 : -2] != a.rows())
    throw ShapeError(
        fmt::format("{}: {} does not go with a right side {}: [..., m, n] takes [..., m, k] or [m]", op,
                    (*a).shape().str(), given.shape().str()));
  const Variable wide = is_half(given.dtype()) ? cast(given, float32) : given;
  if (given.rank() > 1) return a.back(f(wide));
  return a.back(squeeze(f(unsqueeze(wide, -1)), -1));
}

/// The singular values that count, as 1, and others as 0.
Variable that_count(const Variable& s, const MatrixOperand& a, std::optional<double> rtol,
                    std::string_view op) {
  const double epsilon = (*a).dtype() == float64 ? std::numeric_limits<double>::epsilon()
                                                 : double{std::numeric_limits<float>::epsilon()};
  if (rtol && !(*rtol >= 0)) throw Error(fmt::format("{}: rtol is {}; it must not be negative", op, *rtol));
  const Variable largest = max(pad(s, {{0, 1}}), -1, true);  // 0 where a matrix has no elements
  // [..., m, n] has max(m, n) times as many elements as the singular values.
  return greater(s, largest * (rtol ? full_like(largest, *rtol) : count_ratio(*a, s) * epsilon));
}

}  // namespace

Variable solve(const Operand& a, const Operand& b) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "solve", true);
    return with_right_side(x, b, "solve", [&](const Variable& right) {
      return lu_solve(lu_factors(*x), right, false, "solve");
    });
  });
}

Variable triangular_solve(const Operand& a, const Operand& b, const TriangularOptions& options) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "triangular_solve", true);
    return with_right_side(x, b, "triangular_solve", [&](const Variable& right) {
      return triangular_solve_of(*x, right, options.upper, options.transposed, options.unit_diagonal);
    });
  });
}

Variable cholesky_solve(const Operand& b, const Operand& factor, bool upper) {
  return decomposed(factor, [&] {
    const MatrixOperand x(factor, "cholesky_solve", true);
    return with_right_side(x, b, "cholesky_solve", [&](const Variable& right) {
      const Variable half = triangular_solve_of(*x, right, upper, upper, false);
      return triangular_solve_of(*x, half, upper, !upper, false);
    });
  });
}

Variable inverse(const Operand& a) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "inverse", true);
    return x.back(lu_solve(lu_factors(*x), eye_like(*x), false, "inverse"));
  });
}

Variable matrix_power(const Operand& a, int64_t n) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "matrix_power", true);
    if (n == 0) return x.back(broadcast_like(eye_like(*x), *x));
    Variable square = n > 0 ? *x : lu_solve(lu_factors(*x), eye_like(*x), false, "matrix_power");
    Variable result;
    for (uint64_t left = n > 0 ? static_cast<uint64_t>(n) : -static_cast<uint64_t>(n);;) {
      if (left & 1) result = result.defined() ? matmul(result, square) : square;
      left >>= 1;
      if (left == 0) break;
      square = matmul(square, square);
    }
    return x.back(result);
  });
}

Variable det(const Operand& a) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "det", true);
    return x.back(lu_determinant(lu_factors(*x), DeterminantForm::whole));
  });
}

LogDeterminant slogdet(const Operand& a) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "slogdet", true);
    const LuFactors factors = lu_factors(*x);
    return LogDeterminant{x.back(lu_determinant(factors, DeterminantForm::sign)),
                          x.back(lu_determinant(factors, DeterminantForm::log_abs))};
  });
}

Variable cholesky(const Operand& a, bool upper) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "cholesky", true);
    const Variable lower = cholesky_factor(*x);
    return x.back(upper ? transpose(lower) : lower);
  });
}

QrFactors qr(const Operand& a) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "qr", false);
    const Variable q = qr_factors(*x);
    return QrFactors{x.back(q), x.back(output_of(q, 1))};
  });
}

SvdFactors svd(const Operand& a) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "svd", false);
    const Variable u = svd_factors(*x);
    return SvdFactors{x.back(u), x.back(output_of(u, 1)), x.back(output_of(u, 2))};
  });
}
Variable svdvals(const Operand& a) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "svdvals", false);
    return x.back(singular_values(*x));
  });
}

EighFactors eigh(const Operand& a) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "eigh", true);
    const Variable values = eigh_factors(*x);
    return EighFactors{x.back(values), x.back(output_of(values, 1))};
  });
}
Variable eigvalsh(const Operand& a) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "eigvalsh", true);
    return x.back(eigenvalues(*x));
  });
}

Variable lstsq(const Operand& a, const Operand& b) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "lstsq", false);
    return with_right_side(x, b, "lstsq", [&](const Variable& right) {
      if (sizes_may_vary(*x)) {
        // a = q · r and rᵀ = p · t, where t is square for any sizes: x = p · t⁻ᵀ · qᵀ · b.
        const Variable q = qr_factors(*x), p = qr_factors(transpose(output_of(q, 1))), t = output_of(p, 1);
        return matmul(p, triangular_solve_of(t, matmul(transpose(q), right), true, true, false));
      }
      const bool tall = x.rows() >= x.columns();
      const Variable q = qr_factors(tall ? *x : transpose(*x)), r = output_of(q, 1);
      if (tall) return triangular_solve_of(r, matmul(transpose(q), right), true, false, false);
      return matmul(q, triangular_solve_of(r, right, true, true, false));
    });
  });
}

Variable pinv(const Operand& a, std::optional<double> rtol) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "pinv", false);
    const Variable u = svd_factors(stop_gradient(*x)), s = output_of(u, 1);
    const Variable kept = that_count(s, x, rtol, "pinv");
    const Variable reciprocals = where(kept, 1.0 / where(kept, s, ones_like(s)), zeros_like(s));
    const Variable value = matmul(transpose(output_of(u, 2)) * unsqueeze(reciprocals, -2), transpose(u));
    return x.back(pinv_with_gradient(value, *x));
  });
}

Variable matrix_rank(const Operand& a, std::optional<double> rtol) {
  return decomposed(a, [&] {
    const MatrixOperand x(a, "matrix_rank", false);
    return sum(cast(that_count(singular_values(*x), x, rtol, "matrix_rank"), int64), -1);
  });
}

}  // namespace espalier
