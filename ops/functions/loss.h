// Losses.
#pragma once
#include <cstdint>
#include <optional>

#include "espalier/core/variable.h"

namespace espalier {

// Losses, averaged over the batch.
/// Mean of (prediction − target)² over all elements; both have one shape.
Variable mean_squared_error(const Operand& prediction, const Operand& target);
/// What becomes of the losses of the elements.
enum class LossReduction : uint8_t { mean, sum, none };
struct CrossEntropyOptions {
  /// By how much the label of each class counts: [classes], real. The mean is divided by the sum of what the
  /// labels count; with probabilities, by the number of rows. Undefined: all count 1.
  Variable class_weights = {};
  /// Integer labels of this value count nothing; it need not be a class. If all do, the mean is NaN,
  /// and so is its gradient; a sum is 0, with a gradient of 0.
  std::optional<int64_t> ignored_label = {};
  /// From 0 to 1: the target is (1 − s) · label + s / classes. Szegedy et al., Rethinking the Inception
  /// architecture, 2015.
  double label_smoothing = 0;
  /// By how much each loss counts: any shape that is broadcast to that of the losses. They do not change what
  /// the mean is divided by.
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// −log softmax(logits)[label] along the last axis: logits [..., classes]; labels [...] or [..., 1] of
/// integers, or [..., classes] of probabilities. A scalar, or with LossReduction::none one loss for each
/// label. Throws ShapeError, TypeError, IndexError for a label that is no class, Error for other options.
Variable softmax_cross_entropy(const Operand& logits, const Operand& labels,
                               const CrossEntropyOptions& options = {});

}  // namespace espalier
