// Layers of transformers, by PyTorch's names. Vaswani et al., Attention is all you need, 2017.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "espalier/nn/layer_norm.h"
#include "espalier/nn/module_list.h"
#include "espalier/nn/multi_head_attention.h"

namespace espalier::nn {

struct TransformerOptions {
  int64_t feedforward = 2048;  ///< the width between `linear1` and `linear2`
  double dropout = 0.1;        ///< of the weights of attention and of what each part adds, in training mode
  std::function<Variable(const Variable&)> activation = {};  ///< between the two; without: relu
  bool norm_first = false;                   ///< norms before the parts instead of behind the sums
  bool bias = true;                          ///< of the products; norms have theirs
  double epsilon = 1e-5;                     ///< of the norms
  std::optional<RotaryOptions> rotary = {};  ///< of self-attention
  bool alibi = false;                        ///< of self-attention
  DType dtype = float32;                     ///< of the parameters: a real one
};

/// One KvCache for each layer of an encoder or decoder.
using KvCaches = std::vector<KvCache>;

/// x [batch, time, width] ↦ the same shape: norm1(x + self_attn(x)), then norm2(x + linear2(f(linear1(x)))).
/// Parts: `self_attn`, `linear1`, `linear2`, `norm1`, `norm2`. Constructors throw Error as those of the
/// parts.
class TransformerEncoderLayer : public ModuleOf<TransformerEncoderLayer> {
 public:
  TransformerEncoderLayer(int64_t width, int64_t heads, TransformerOptions options = {},
                          Where where = Where::current());
  Variable operator()(const Variable& x, const AttentionMasks& masks = {},
                      Where where = Where::current()) const;
  /// The next steps of a causal encoder, as MultiHeadAttention::step.
  Variable step(const Variable& x, KvCache& cache, Where where = Where::current()) const;

  /// For ClonedParts.
  TransformerEncoderLayer with_parts(const ClonedParts& parts) const;

 private:
  Variable apply(const Variable& x, const std::function<Variable(const Variable&)>& attend) const;

  TransformerOptions options_;
  MultiHeadAttention self_attn_;
  Dense linear1_, linear2_;
  LayerNorm norm1_, norm2_;
};

/// The same with a part for `memory`, what an encoder made of another sequence: norm1(x + self_attn(x)),
/// norm2(x + multihead_attn(x, memory)), norm3(x + linear2(f(linear1(x)))).
class TransformerDecoderLayer : public ModuleOf<TransformerDecoderLayer> {
 public:
  TransformerDecoderLayer(int64_t width, int64_t heads, TransformerOptions options = {},
                          Where where = Where::current());
  Variable operator()(const Variable& x, const Variable& memory, const AttentionMasks& masks = {},
                      const AttentionMasks& memory_masks = {}, Where where = Where::current()) const;
  /// The next steps, each of which sees those before. The keys and values of `memory` are computed once, as
  /// MultiHeadAttention::step says.
  Variable step(const Variable& x, const Variable& memory, KvCache& cache,
                const AttentionMasks& memory_masks = {}, Where where = Where::current()) const;

  /// For ClonedParts.
  TransformerDecoderLayer with_parts(const ClonedParts& parts) const;

 private:
  Variable apply(const Variable& x, const std::function<Variable(const Variable&)>& attend,
                 const std::function<Variable(const Variable&)>& attend_to_memory) const;

  TransformerOptions options_;
  MultiHeadAttention self_attn_, multihead_attn_;
  Dense linear1_, linear2_;
  LayerNorm norm1_, norm2_, norm3_;
};

/// `layers` layers, named "layers.0", …, and with `final_norm` a last `norm`. Error for a negative number.
class TransformerEncoder : public ModuleOf<TransformerEncoder> {
 public:
  TransformerEncoder(int64_t layers, int64_t width, int64_t heads, TransformerOptions options = {},
                     bool final_norm = false, Where where = Where::current());
  Variable operator()(const Variable& x, const AttentionMasks& masks = {},
                      Where where = Where::current()) const;
  /// The next steps of a causal encoder. Caches that are not there yet are made.
  Variable step(const Variable& x, KvCaches& caches, Where where = Where::current()) const;

  /// For ClonedParts.
  TransformerEncoder with_parts(const ClonedParts& parts) const;

 private:
  ModuleList<TransformerEncoderLayer> layers_;
  std::optional<LayerNorm> norm_;
};

class TransformerDecoder : public ModuleOf<TransformerDecoder> {
 public:
  TransformerDecoder(int64_t layers, int64_t width, int64_t heads, TransformerOptions options = {},
                     bool final_norm = false, Where where = Where::current());
  Variable operator()(const Variable& x, const Variable& memory, const AttentionMasks& masks = {},
                      const AttentionMasks& memory_masks = {}, Where where = Where::current()) const;
  Variable step(const Variable& x, const Variable& memory, KvCaches& caches,
                const AttentionMasks& memory_masks = {}, Where where = Where::current()) const;

  /// For ClonedParts.
  TransformerDecoder with_parts(const ClonedParts& parts) const;

 private:
  ModuleList<TransformerDecoderLayer> layers_;
  std::optional<LayerNorm> norm_;
};

/// An encoder of `source` [batch, steps, width], and a decoder of `target` [batch, time, width] that attends
/// to it: [batch, time, width]. Parts: `encoder` and `decoder`, each with a last norm.
class Transformer : public ModuleOf<Transformer> {
 public:
  struct Sizes {
    int64_t width = 512, heads = 8, encoder_layers = 6, decoder_layers = 6;
  };
  struct Masks {
    AttentionMasks source, target, memory;
  };
  explicit Transformer(Sizes sizes, TransformerOptions options = {}, Where where = Where::current());
  Variable operator()(const Variable& source, const Variable& target, const Masks& masks,
                      Where where = Where::current()) const;
  Variable operator()(const Variable& source, const Variable& target, Where where = Where::current()) const {
    return (*this)(source, target, Masks{}, where);
  }
  const TransformerEncoder& encoder() const { return encoder_; }
  const TransformerDecoder& decoder() const { return decoder_; }

  /// For ClonedParts.
  Transformer with_parts(const ClonedParts& parts) const;

 private:
  TransformerEncoder encoder_;
  TransformerDecoder decoder_;
};

}  // namespace espalier::nn
