// Triplet losses with a distance of the user's.
#pragma once
#include <functional>

#include "espalier/ops/functions/loss.h"

namespace espalier {

struct TripletDistanceOptions {
  /// d(a, b), written with operations, of batches of one shape; none is pairwise_distance.
  std::function<Variable(const Variable& a, const Variable& b)> distance = {};
  double margin = 1;
  /// Take the smaller of the distances of the negative from the anchor and from the positive. Balntas et al.,
  /// Learning shallow convolutional feature descriptors with triplet losses, 2016.
  bool swap = false;
  Variable weights = {};
  LossReduction reduction = LossReduction::mean;
};
/// max(0, d(anchor, positive) − d(anchor, negative) + margin), one loss for each distance. Operands have one
/// real dtype (TypeError) and one shape (ShapeError); 16-bit ones are computed in float32.
Variable triplet_margin_with_distance_loss(const Operand& anchor, const Operand& positive,
                                           const Operand& negative,
                                           const TripletDistanceOptions& options = {});

}  // namespace espalier
