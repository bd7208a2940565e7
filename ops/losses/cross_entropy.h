// Softmax and cross-entropy in one kernel, and the gradient in another. softmax_cross_entropy() applies them
// where nothing is downstream of feeds; plans replace its ops by them.
#pragma once
#include <string_view>

#include "espalier/core/op.h"
#include "espalier/core/variable.h"

namespace espalier {

/// As `pick`, but errors name that function, which the user has called. It is an attribute of the op, from
/// which those below take it.
Variable pick_for(std::string_view function, const Variable& x, const Variable& labels);

/// Inputs x [..., classes] and labels [...]. Outputs log softmax(x)[label], of the labels' shape, and the
/// statistics of each row for the gradient: [..., 2], the row's maximum and log Σ exp(x - maximum). The
/// `loss` of single rows, x [..., 1, classes] and labels [..., 1], is the negative of that, of shape [...].
OpPtr log_softmax_pick(std::string_view function, bool loss = false);
/// Inputs x, these statistics, labels and g, of the first output's shape: its derivative, times g.
OpPtr log_softmax_pick_gradient(std::string_view function, bool loss = false);

}  // namespace espalier
