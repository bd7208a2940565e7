// MultiHeadAttention: attention between projections of queries, keys and values.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "espalier/nn/cloned_parts.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/kv_cache.h"
#include "espalier/nn/positions.h"

namespace espalier::nn {

struct MultiHeadAttentionOptions {
  double dropout = 0;  ///< of the weights, in training mode
  bool bias = true;
  bool add_bias_kv = false;  ///< a learned key and value behind the others, which every query sees
  int64_t key_heads = 0;     ///< heads of keys and values, a divisor of the heads; 0: as many
  int64_t key_width = 0;     ///< of the keys that come in; 0: as the queries
  int64_t value_width = 0;   ///< the same for values
  std::optional<RotaryOptions> rotary = {};  ///< positions of queries and keys
  /// Scores are lowered by the distance of query and key, as by `alibi` for a mask: [heads, queries, keys].
  bool alibi = false;
  DType dtype = float32;  ///< of the parameters: a real one
};

/// What queries see.
struct AttentionMasks {
  /// As in AttentionOptions: true where a key takes part, or reals that are added to the scores. Broadcast to
  /// [batch, heads, queries, keys].
  Variable mask = {};
  /// [batch, keys]: true where there is a key. PyTorch's key_padding_mask is the opposite.
  Variable key_mask = {};
  /// Query i sees keys 0 to i.
  bool causal = false;
};

/// With queries [batch, time, width], keys [batch, steps, key_width] and values [batch, steps, value_width]:
/// [batch, time, width]. Each head attends with its part of their projections, and the heads side by side are
/// projected by `out_proj`. Vaswani et al., Attention is all you need, 2017; PyTorch's parameters:
/// `in_proj_weight` [width + 2 · projected, width], or `q_proj_weight`, `k_proj_weight` and `v_proj_weight`
/// if keys or values have widths of their own, `in_proj_bias`, `bias_k` and `bias_v` [1, 1, projected],
/// `out_proj.weight` and `out_proj.bias`, where `projected` is key_heads · width / heads. Calls throw
/// ShapeError and TypeError; the constructor Error unless width is a multiple of heads and heads of
/// key_heads.
class MultiHeadAttention : public ModuleOf<MultiHeadAttention> {
 public:
  MultiHeadAttention(int64_t width, int64_t heads, MultiHeadAttentionOptions options = {},
                     Where where = Where::current());

  /// Of x with itself.
  Variable operator()(const Variable& x, Where where = Where::current()) const;
  Variable operator()(const Variable& x, const AttentionMasks& masks, Where where = Where::current()) const;
  Variable operator()(const Variable& query, const Variable& key, const Variable& value,
                      const AttentionMasks& masks = {}, Where where = Where::current()) const;
  struct WithWeights {
    Variable y;
    Variable weights;  ///< [batch, time, steps], the mean over the heads, or [batch, heads, time, steps]
  };
  /// The weights are those after dropout. They take the memory of a whole matrix for each head.
  WithWeights with_weights(const Variable& query, const Variable& key, const Variable& value,
                           const AttentionMasks& masks = {}, bool average = true,
                           Where where = Where::current()) const;
  /// The next steps of a causal attention of x with itself: the same as those of a call with all steps.
  Variable step(const Variable& x, KvCache& cache, Where where = Where::current()) const;
  /// The next steps of an attention of x to `memory`, [batch, steps, width], which is the same Variable in
  /// each call. The cache keeps its keys and values until another memory comes or a parameter is assigned;
  /// elements that are written into a Tensor of either are not seen. UnsupportedError with .rotary or .alibi.
  Variable step(const Variable& x, const Variable& memory, KvCache& cache, const AttentionMasks& masks = {},
                Where where = Where::current()) const;

  /// For ClonedParts.
  MultiHeadAttention with_parts(const ClonedParts& parts) const;

 private:
  struct Heads {
    Variable q, k, v;
  };
  Heads project(const Variable& query, const Variable& key, const Variable& value, int64_t past) const;
  Variable project_queries(const Variable& query, int64_t past) const;
  Heads project_keys(const Variable& key, const Variable& value, int64_t past) const;
  Heads heads_of_keys(Variable k, Variable v, int64_t past) const;
  Variable turned(const Variable& heads, int64_t past) const;
  std::vector<Variable> parameters_of_keys() const;
  bool is_current(const KvCache::Projected& projected, const Variable& memory) const;
  Heads keys_of_memory(const Variable& memory, KvCache& cache) const;
  struct Part {
    int64_t begin, end;
  };
  /// Where queries (0), keys (1) and values (2) are in a parameter of all three.
  Part part(int which) const;
  Variable split(const Variable& x, int64_t heads) const;
  Variable joined(const Variable& y) const;
  AttentionOptions options_for(const AttentionMasks& masks, const Variable& queries, const Variable& keys,
                               int64_t past) const;
  Variable with_slopes(const Variable& mask, const Variable& queries, const Variable& keys,
                       int64_t past) const;

  int64_t width_, heads_, key_heads_;
  MultiHeadAttentionOptions options_;
  Variable weight_, q_weight_, k_weight_, v_weight_, bias_, bias_k_, bias_v_;
  Dense out_;
};

}  // namespace espalier::nn
