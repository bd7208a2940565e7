// The ops that decompositions are composed of.
#pragma once
#include <string>

#include "espalier/core/variable.h"

namespace espalier {

/// The factorization of square matrices by getrf, in an order of its own. No gradient passes through it: what
/// is computed with it has a gradient with respect to `a`.
struct LuFactors {
  Variable a, lu, pivots;
};
LuFactors lu_factors(const Variable& a);
/// a⁻¹ · b, or (aᵀ)⁻¹ · b. `function` names it in errors.
Variable lu_solve(const LuFactors& factors, const Variable& b, bool transposed, const std::string& function);

/// In the last two axes of `x`: 1 where −below ≤ column − row ≤ above, but `diagonal` on the diagonal; else
/// 0. Negative limits are none. Reads the shape of `x` alone.
Variable band_like(const Variable& x, int64_t below, int64_t above, double diagonal = 1);
inline constexpr int64_t unlimited_band = -1;
/// The identity in the last two axes of `x`.
inline Variable eye_like(const Variable& x) { return band_like(x, 0, 0); }

/// x with its last two axes swapped, times y, and so on, as they are written.
Variable triangular_solve_of(const Variable& a, const Variable& b, bool upper, bool transposed, bool unit);

}  // namespace espalier
