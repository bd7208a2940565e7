// The ops of decompositions. Those with several outputs are reached through the first.
#pragma once
#include "espalier/core/node.h"

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

/// Whether the sizes of `x` may be others in a later evaluation: downstream of a feed, whose last batch may
/// be short. Then a rule must hold for matrices that become wide.
inline bool sizes_may_vary(const Variable& x) { return x.node()->lazy || build_context().lazy; }

/// Output k of the node of another.
inline Variable output_of(const Variable& first, uint32_t k) { return Variable(first.node(), k); }

}  // namespace espalier
