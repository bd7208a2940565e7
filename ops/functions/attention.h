// Scaled dot-product attention.
#pragma once
#include <cstdint>
#include <optional>

#include "espalier/core/variable.h"

namespace espalier {

struct AttentionOptions {
  /// Which keys a query sees, as booleans, or reals that are added to the scores and may be trained. It is
  /// broadcast to [..., heads, queries, keys]. Undefined: all.
  Variable mask = {};
  /// Which keys there are, as booleans, for all heads and queries: [..., keys], with the leading axes of the
  /// query without the heads. True: the key takes part. Undefined: all.
  Variable key_mask = {};
  /// Query i sees keys 0 to i + past.
  bool causal = false;
  /// Keys before the first query, as a cache of them has.
  int64_t past = 0;
  /// The factor of the scores; 1 / √width if there is none.
  std::optional<double> scale = {};
  /// The rate at which weights are dropped, in [0, 1). Plans of inference drop none.
  double dropout = 0;
};

/// softmax(scale · q kᵀ + mask) v, for q [..., heads, queries, width], k [..., key_heads, keys, width] and v
/// [..., key_heads, keys, value_width]: [..., heads, queries, value_width]. Axes before the last two may be
/// missing. `heads` is a multiple of `key_heads`; each key head serves that many heads that follow each other
/// (grouped queries: Ainslie et al., 2023). A query that sees no key gives zeros. Memory is linear in queries
/// and keys: tiles of the scores are computed, and again for the gradients (FlashAttention: Dao et al.,
/// 2022), except for the gradient of a mask and for gradients of second order, which take whole matrices of
/// scores. ShapeError, TypeError; Error for a rate outside [0, 1) and a negative `past`.
Variable scaled_dot_product_attention(const Operand& q, const Operand& k, const Operand& v,
                                      const AttentionOptions& options = {});

/// The same result, and the weights with which it sums values, after dropout: [..., heads, queries, keys],
/// whose memory is that of a whole matrix of scores.
struct AttentionAndWeights {
  Variable y, weights;
};
AttentionAndWeights scaled_dot_product_attention_and_weights(const Operand& q, const Operand& k,
                                                             const Operand& v,
                                                             const AttentionOptions& options = {});

}  // namespace espalier
