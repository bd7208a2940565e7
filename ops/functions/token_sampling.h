// Choosing tokens by their logits, as generating models do.
#pragma once
#include <cstdint>

#include "espalier/core/variable.h"

namespace espalier {

struct TokenSampling {
  double temperature = 1;  ///< logits are divided by it; near 0 the largest one wins
  int64_t top_k = 0;       ///< only the k largest logits of a row; 0: all
  /// Only the fewest classes, the most probable first, that have this probability together. Holtzman et al.,
  /// The curious case of neural text degeneration, 2020.
  double top_p = 1;
};
/// Logits [..., classes] / temperature, −∞ for classes that are left out. Of equal logits the first comes
/// first; each row keeps a class. `top_p` counts the probabilities among the `top_k`. For reals. Throws Error
/// unless temperature > 0, top_k ≥ 0 and 0 < top_p ≤ 1, ShapeError, TypeError.
Variable truncated_logits(const Operand& logits, const TokenSampling& options);
/// A class (int64) for each row, drawn from softmax(truncated_logits(logits, options)): [...]. As
/// categorical, it is drawn anew in each evaluation of a step, the same under one seed.
Variable sample_logits(const Operand& logits, const TokenSampling& options = {});

}  // namespace espalier
