// The ops of decompositions. Those with several outputs are reached through the first.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// The lower triangular factor.
Variable cholesky_factor(const Variable& a);
/// Outputs q and r.
Variable qr_factors(const Variable& a);
/// Outputs u, s and vt.
Variable svd_factors(const Variable& a);
/// s alone.
Variable singular_values(const Variable& a);
/// Outputs: the values and the vectors.
Variable eigh_factors(const Variable& a);
/// The values alone.
Variable eigenvalues(const Variable& a);

/// Output k of the node of another.
inline Variable output_of(const Variable& first, uint32_t k) { return Variable(first.node(), k); }

}  // namespace espalier
