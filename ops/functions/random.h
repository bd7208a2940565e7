// Random numbers in a tree.
#pragma once
#include <source_location>

#include "espalier/core/variable.h"

namespace espalier {

// Random numbers. Downstream of a feed, or in a tree that has one, each evaluation of a step draws them anew,
// and so does each step of a plan: the same numbers eagerly, in plans, on replicas and from checkpoints. In a
// tree without a feed they are drawn where they are written. No gradient passes through them; it does through
// what is computed with them: mean + deviation * randn_like(mean) is differentiable in both.
/// Standard normal numbers in the shape and dtype of `x`, for reals; rows of a batch if `x` has such.
Variable randn_like(const Operand& x);
/// Uniform numbers in [0, 1), in the shape and dtype of `x`, for reals.
Variable rand_like(const Operand& x);
/// 1 with the probability that stands in that place of `p`, else 0, in the dtype of `p`, for reals: where
/// rand_like(p) would be below p. Throws Error where p is not in [0, 1], NaN included (on a GPU at the next
/// synchronization).
Variable bernoulli(const Operand& p);
/// Standard normal numbers, and uniform ones in [0, 1), in a shape that does not depend on the batch. Throw
/// TypeError unless the dtype is real.
Variable normal(const Shape& shape, DType dtype = float32, Device device = {},
                std::source_location where = std::source_location::current());
Variable uniform(const Shape& shape, DType dtype = float32, Device device = {},
                 std::source_location where = std::source_location::current());
/// 1 with probability `p`, else 0, in such a shape and any dtype. Throws Error unless `p` is in [0, 1].
Variable bernoulli(double p, const Shape& shape, DType dtype = float32, Device device = {},
                   std::source_location where = std::source_location::current());
/// Zeroes elements with probability `rate` and divides the others by 1 − rate. The identity in plans of
/// inference.
Variable dropout(const Operand& x, double rate);

}  // namespace espalier
