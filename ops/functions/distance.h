// Similarities and distances of vectors.
#pragma once
#include <cstdint>

#include "espalier/core/variable.h"

namespace espalier {

/// a·b / (max(‖a‖, ε) · max(‖b‖, ε)) along an axis, where both are broadcast. For reals; ε > 0.
Variable cosine_similarity(const Operand& a, const Operand& b, int64_t axis = -1, double epsilon = 1e-8);

struct DistanceOptions {
  double p = 2;           ///< of the norm (Σ|x|ᵖ)^(1/p), above 0; infinity for the largest |x|
  double epsilon = 1e-6;  ///< added to each difference, so that the norm of equal vectors has a gradient
  bool keep_dims = false;
};
/// ‖a − b + ε‖ along the last axis, where both are broadcast. For reals. Throws Error unless p is above 0.
Variable pairwise_distance(const Operand& a, const Operand& b, const DistanceOptions& options = {});

/// The distances of all pairs of rows, a [..., n, d] and b [..., m, d] with leading axes broadcast:
/// [..., n, m] of ‖aᵢ − bⱼ‖, with p as above. The gradient at equal rows is 0. For p = 2 and more than 25
/// rows, or an open number, it is computed as √(‖a‖² + ‖b‖² − 2·a·b), by a product of matrices, with rows
/// seen from the mean of b: distances that are small beside those to the mean lose digits. For reals. Throws
/// Error unless p is above 0.
Variable cdist(const Operand& a, const Operand& b, double p = 2);

}  // namespace espalier
