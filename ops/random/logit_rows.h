// Logits that must be distributions.
#pragma once
#include <string_view>

#include "espalier/core/tensor.h"

namespace espalier {

/// Throws NumericError, naming `function` and the row, if one of the rows of logits [..., classes] contains
/// NaN or +∞, or has −∞ alone. The logits are reals on the host.
void check_logit_rows(const Tensor& logits, std::string_view function);

}  // namespace espalier
