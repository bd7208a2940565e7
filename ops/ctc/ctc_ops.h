// The ops of ctc_loss. Log-probabilities x are [batch, steps, classes], targets [batch, labels], lengths
// [batch].
#pragma once
#include "espalier/core/op.h"

namespace espalier {

struct CtcForm {
  int64_t blank = 0;
  bool zero_infinity = false;
};

/// Inputs x, targets, input lengths, target lengths. Outputs the losses [batch], and for the gradient log of
/// the probability of the beginnings of the alignments, float64 [batch, steps, 2 · labels + 1].
OpPtr ctc_loss_op(CtcForm form);
/// These inputs, that second output, and g [batch]: g · the gradient of each loss.
OpPtr ctc_loss_gradient_op(CtcForm form);
/// The inputs of the first, and a direction of x. Outputs the derivatives of the losses in that direction,
/// [batch], and those of their gradients.
OpPtr ctc_loss_curvature_op(CtcForm form);

}  // namespace espalier
