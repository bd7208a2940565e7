// Random numbers of further distributions, in a tree. They are drawn as those of random.h are: anew in each
// evaluation of a step and in each step of a plan, the same numbers eagerly, in plans, on replicas and from
// checkpoints. No gradient passes through them. In another shape: randint_like(broadcast_to(0.0f, shape), …).
#pragma once
#include <cstdint>

#include "espalier/core/variable.h"

namespace espalier {

/// Integers (int64) in [low, high) in the shape of `x`, each as likely. Throws Error unless low < high.
Variable randint_like(const Operand& x, int64_t low, int64_t high);
/// Numbers of the exponential distribution with mean 1, in the shape and dtype of `x`, for reals. They are
/// positive, in float32 with a granularity of 2^-24 near 0, as rand_like has.
Variable exponential_like(const Operand& x);
/// Standard normal numbers that lie in [low, high], in the shape and dtype of `x`, for reals. Throws Error
/// unless the interval has a positive probability in float64.
Variable truncated_normal_like(const Operand& x, double low = -2, double high = 2);
/// Poisson's distribution with the mean that stands in that place of `mean`, in its dtype, for reals. Throws
/// Error where a mean is negative, NaN or above 2^62 (on a GPU at the next synchronization).
Variable poisson(const Operand& mean);
/// The gamma distribution of scale 1 with the shape parameter that stands in that place of `concentration`,
/// in its dtype, for reals. Throws Error where one is not positive and finite (on a GPU at the next
/// synchronization).
Variable gamma(const Operand& concentration);

/// The class (int64) that each row of logits [..., classes] draws, with the probabilities softmax(logits):
/// [...]. For reals; −∞ is never drawn if another class is finite.
Variable categorical(const Operand& logits);
/// `count` positions (int64) in each row of `weights` [..., n], with probabilities in proportion to the
/// weights:
/// [..., count]. Without `replacement`, each position at most once, in the order in which they were drawn.
/// For reals. Throws Error where a weight is negative or not finite, and for a row with fewer positive
/// weights than are drawn (on a GPU at the next synchronization); ShapeError.
Variable multinomial(const Operand& weights, int64_t count, bool replacement = false);

}  // namespace espalier
