// Losses: the error of a prediction as one number.
#pragma once
#include <source_location>
#include <utility>

#include "espalier/core/variable.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

/// The mean of squares over all elements of `prediction - target`, which must have one shape (ShapeError).
struct MeanSquared {
  using Where = std::source_location;
  Variable operator()(const Variable& prediction, const Variable& target,
                      Where where = Where::current()) const;
};

/// −log softmax(prediction)[target], as `softmax_cross_entropy` with the same options: prediction
/// [..., classes] before any softmax; target [...] or [..., 1] of integers, or [..., classes] of
/// probabilities. Throws ShapeError, TypeError, or IndexError for a label that is no class.
class SoftmaxCrossEntropy {
 public:
  using Where = std::source_location;
  SoftmaxCrossEntropy() = default;
  explicit SoftmaxCrossEntropy(CrossEntropyOptions options) : options_(std::move(options)) {}
  Variable operator()(const Variable& prediction, const Variable& target,
                      Where where = Where::current()) const;

 private:
  CrossEntropyOptions options_;
};

/// The sum of all elements, for programs without a target.
struct ConstantLoss {
  using Where = std::source_location;
  Variable operator()(const Variable& x, Where where = Where::current()) const;
};

}  // namespace espalier::nn
