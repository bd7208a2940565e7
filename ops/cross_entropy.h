// Softmax and cross-entropy in one kernel, and its gradient in another. Plans put them in the place of what
// softmax_cross_entropy() is made of.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

/// Inputs x [..., classes] and labels [...]. Outputs log softmax(x)[label], of the labels' shape, and for
/// each row what its gradient needs: [rows, 2] with the row's largest element and log Σ exp(x - largest).
OpPtr log_softmax_pick();
/// Inputs x, those figures, labels and g, of the labels' shape: g · (one_hot(label) - softmax(x)).
OpPtr log_softmax_pick_gradient();

}  // namespace espalier
