// Softmax and cross-entropy in one kernel, and the gradient in another. Plans replace the ops of
// softmax_cross_entropy() by them.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

/// Inputs x [..., classes] and labels [...]. Outputs log softmax(x)[label], of the labels' shape, and the
/// statistics of each row for the gradient: [rows, 2], the row's maximum and log Σ exp(x - maximum).
OpPtr log_softmax_pick();
/// Inputs x, these statistics, labels and g, of the labels' shape: g · (one_hot(label) - softmax(x)).
OpPtr log_softmax_pick_gradient();

}  // namespace espalier
