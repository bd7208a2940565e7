// Losses: the error of a prediction as one number.
#pragma once
#include <source_location>

#include "espalier/core/variable.h"

namespace espalier::nn {

/// The mean of squares over all elements of `prediction - target`, which must have one shape (ShapeError).
struct MeanSquared {
  using Where = std::source_location;
  Variable operator()(const Variable& prediction, const Variable& target,
                      Where where = Where::current()) const;
};

/// −log softmax(prediction)[target], averaged over the batch: prediction [n, classes] before any softmax;
/// target [n] or [n, 1] of integers, or [n, classes] of probabilities. Throws ShapeError, TypeError, or
/// IndexError for a label that is no class.
struct SoftmaxCrossEntropy {
  using Where = std::source_location;
  Variable operator()(const Variable& prediction, const Variable& target,
                      Where where = Where::current()) const;
};

/// The sum of all elements, for programs without a target.
struct ConstantLoss {
  using Where = std::source_location;
  Variable operator()(const Variable& x, Where where = Where::current()) const;
};

}  // namespace espalier::nn
