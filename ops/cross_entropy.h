// Softmax and cross-entropy in one kernel, and the gradient in another. Plans replace the ops of
// softmax_cross_entropy() by them.
#pragma once
#include <string>
#include <string_view>

#include "espalier/core/op.h"
#include "espalier/core/variable.h"

namespace espalier {

/// As `pick`, but errors name that function, which the user has called. It is an attribute of the op, from
/// which those below take it.
Variable pick_for(std::string_view function, const Variable& x, const Variable& labels);

/// Inputs x [..., classes] and labels [...]. Outputs log softmax(x)[label], of the labels' shape, and the
/// statistics of each row for the gradient: [rows, 2], the row's maximum and log Σ exp(x - maximum).
OpPtr log_softmax_pick(std::string function);
/// Inputs x, these statistics, labels and g, of the labels' shape: g · (one_hot(label) - softmax(x)).
OpPtr log_softmax_pick_gradient(std::string function);

}  // namespace espalier
