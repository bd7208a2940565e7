// Choosing tokens by their logits, as generating models do.
#pragma once
#include <cstdint>

#include "espalier/core/variable.h"

namespace espalier {

struct TokenSampling {
  /// Divides the distances of logits from each other; near 0 the largest one wins. Less than the smallest
  /// normal number of the type counts as that.
  double temperature = 1;
  int64_t top_k = 0;  ///< only the k largest logits of a row; 0: all
  /// Only the fewest classes, the most probable first, that have this probability together. Holtzman et al.,
  /// The curious case of neural text degeneration, 2020.
  double top_p = 1;
};
/// Logits [..., classes], −∞ for classes that are left out. A temperature other than 1 makes them
/// (logits − the largest of the row) / temperature, which has the same softmax as logits / temperature and
/// does not overflow. Of equal logits the first comes first; each row keeps a class. `top_p` counts the
/// probabilities among the `top_k`. For reals; those of 16 bits become float32. Throws Error unless
/// temperature > 0, top_k ≥ 0 and 0 < top_p ≤ 1, ShapeError, TypeError.
Variable truncated_logits(const Operand& logits, const TokenSampling& options);
/// A class (int64) for each row, drawn from softmax(truncated_logits(logits, options)): [...]. As
/// categorical, it is drawn anew in each evaluation of a step, the same under one seed. Throws NumericError
/// for a row that contains NaN or +∞, or −∞ alone, if the logits are known when it is called and on the host;
/// elsewhere such a row draws any class.
Variable sample_logits(const Operand& logits, const TokenSampling& options = {});

}  // namespace espalier
