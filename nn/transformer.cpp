#include "espalier/nn/transformer.h"

#include <fmt/format.h>

#include <span>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

using Part = std::function<Variable(const Variable&)>;

MultiHeadAttention attention_of(int64_t width, int64_t heads, const TransformerOptions& o, bool self,
                                const Module::Where& where) {
  MultiHeadAttentionOptions options{.dropout = o.dropout, .bias = o.bias, .dtype = o.dtype};
  if (self) options.rotary = o.rotary, options.alibi = o.alibi;
  return {width, heads, options, where};
}
Dense dense_of(int64_t in, int64_t out, const TransformerOptions& o, const Module::Where& where) {
  return {in, out, {.bias = o.bias, .dtype = o.dtype}, where};
}
LayerNorm norm_of(int64_t width, const TransformerOptions& o, const Module::Where& where) {
  return LayerNorm(width, {.epsilon = o.epsilon, .dtype = o.dtype}, where);
}

/// x plus what a part makes of it, with a norm before the part or behind the sum.
Variable added(const Variable& x, const LayerNorm& norm, const TransformerOptions& o, bool training,
               const Part& part) {
  const auto dropped = [&](const Variable& y) {
    return training && o.dropout > 0 ? dropout(y, o.dropout) : y;
  };
  return o.norm_first ? x + dropped(part(norm(x))) : norm(x + dropped(part(x)));
}
Variable feed_forward(const Variable& x, const Dense& first, const Dense& second, const TransformerOptions& o,
                      bool training) {
  const Variable between = first(x), y = o.activation ? o.activation(between) : relu(between);
  return second(training && o.dropout > 0 ? dropout(y, o.dropout) : y);
}

template <class Layer>
ModuleList<Layer> layers_of(int64_t count, int64_t width, int64_t heads, const TransformerOptions& options,
                            std::string_view kind, const Module::Where& where) {
  if (count < 0) located(where, [&] { throw Error(fmt::format("{}: {} layers", kind, count)); });
  ModuleList<Layer> layers;
  for (int64_t i = 0; i < count; ++i) layers.append(Layer(width, heads, options, where), where);
  return layers;
}

void make_caches(KvCaches& caches, size_t layers, std::string_view kind) {
  if (caches.empty()) caches.resize(layers);
  if (caches.size() != layers)
    throw Error(fmt::format("{}: {} caches for {} layers", kind, caches.size(), layers));
}

/// What `step` appends to the caches is taken back if it throws.
template <class Step>
Variable step_or_back(std::span<KvCache> caches, const Step& step) {
  std::vector<int64_t> lengths;
  for (const KvCache& cache : caches) lengths.push_back(cache.length());
  try {
    return step();
  } catch (...) {
    for (size_t i = 0; i < caches.size(); ++i)
      if (caches[i].length() > lengths[i]) caches[i].truncate(lengths[i]);
    throw;
  }
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(int64_t width, int64_t heads, TransformerOptions options,
                                                 Where where)
    : options_(std::move(options)),
      self_attn_(add("self_attn", attention_of(width, heads, options_, true, where), where)),
      linear1_(add("linear1", dense_of(width, options_.feedforward, options_, where), where)),
      linear2_(add("linear2", dense_of(options_.feedforward, width, options_, where), where)),
      norm1_(add("norm1", norm_of(width, options_, where), where)),
      norm2_(add("norm2", norm_of(width, options_, where), where)) {}

Variable TransformerEncoderLayer::apply(const Variable& x, const Part& attend) const {
  const Variable y = added(x, norm1_, options_, training(), attend);
  return added(y, norm2_, options_, training(), [&](const Variable& in) {
    return feed_forward(in, linear1_, linear2_, options_, training());
  });
}
Variable TransformerEncoderLayer::operator()(const Variable& x, const AttentionMasks& masks,
                                             Where where) const {
  const CallScope scope(where);
  return apply(x, [&](const Variable& in) { return self_attn_(in, masks, where); });
}
Variable TransformerEncoderLayer::step(const Variable& x, KvCache& cache, Where where) const {
  const CallScope scope(where);
  return step_or_back({&cache, 1}, [&] {
    return apply(x, [&](const Variable& in) { return self_attn_.step(in, cache, where); });
  });
}

TransformerEncoderLayer TransformerEncoderLayer::with_parts(const ClonedParts& parts) const {
  TransformerEncoderLayer copy(*this);
  parts.reset(copy);
  copy.self_attn_ = parts.of(self_attn_);
  copy.linear1_ = parts.of(linear1_);
  copy.linear2_ = parts.of(linear2_);
  copy.norm1_ = parts.of(norm1_);
  copy.norm2_ = parts.of(norm2_);
  return copy;
}

TransformerDecoderLayer::TransformerDecoderLayer(int64_t width, int64_t heads, TransformerOptions options,
                                                 Where where)
    : options_(std::move(options)),
      self_attn_(add("self_attn", attention_of(width, heads, options_, true, where), where)),
      multihead_attn_(add("multihead_attn", attention_of(width, heads, options_, false, where), where)),
      linear1_(add("linear1", dense_of(width, options_.feedforward, options_, where), where)),
      linear2_(add("linear2", dense_of(options_.feedforward, width, options_, where), where)),
      norm1_(add("norm1", norm_of(width, options_, where), where)),
      norm2_(add("norm2", norm_of(width, options_, where), where)),
      norm3_(add("norm3", norm_of(width, options_, where), where)) {}

Variable TransformerDecoderLayer::apply(const Variable& x, const Part& attend,
                                        const Part& attend_to_memory) const {
  const Variable y = added(x, norm1_, options_, training(), attend);
  const Variable z = added(y, norm2_, options_, training(), attend_to_memory);
  return added(z, norm3_, options_, training(), [&](const Variable& in) {
    return feed_forward(in, linear1_, linear2_, options_, training());
  });
}
Variable TransformerDecoderLayer::operator()(const Variable& x, const Variable& memory,
                                             const AttentionMasks& masks, const AttentionMasks& memory_masks,
                                             Where where) const {
  const CallScope scope(where);
  return apply(
      x, [&](const Variable& in) { return self_attn_(in, masks, where); },
      [&](const Variable& in) { return multihead_attn_(in, memory, memory, memory_masks, where); });
}
Variable TransformerDecoderLayer::step(const Variable& x, const Variable& memory, KvCache& cache,
                                       const AttentionMasks& memory_masks, Where where) const {
  const CallScope scope(where);
  return step_or_back({&cache, 1}, [&] {
    return apply(
        x, [&](const Variable& in) { return self_attn_.step(in, cache, where); },
        [&](const Variable& in) { return multihead_attn_.step(in, memory, cache, memory_masks, where); });
  });
}

TransformerDecoderLayer TransformerDecoderLayer::with_parts(const ClonedParts& parts) const {
  TransformerDecoderLayer copy(*this);
  parts.reset(copy);
  copy.self_attn_ = parts.of(self_attn_);
  copy.multihead_attn_ = parts.of(multihead_attn_);
  copy.linear1_ = parts.of(linear1_);
  copy.linear2_ = parts.of(linear2_);
  copy.norm1_ = parts.of(norm1_);
  copy.norm2_ = parts.of(norm2_);
  copy.norm3_ = parts.of(norm3_);
  return copy;
}

TransformerEncoder::TransformerEncoder(int64_t layers, int64_t width, int64_t heads,
                                       TransformerOptions options, bool final_norm, Where where)
    : layers_(
          add("layers",
              layers_of<TransformerEncoderLayer>(layers, width, heads, options, "TransformerEncoder", where),
              where)) {
  if (final_norm) norm_ = add("norm", norm_of(width, options, where), where);
}
Variable TransformerEncoder::operator()(const Variable& x, const AttentionMasks& masks, Where where) const {
  const CallScope scope(where);
  Variable y = x;
  for (const TransformerEncoderLayer& layer : layers_) y = layer(y, masks, where);
  return norm_ ? (*norm_)(y) : y;
}
Variable TransformerEncoder::step(const Variable& x, KvCaches& caches, Where where) const {
  const CallScope scope(where);
  located(where, [&] { make_caches(caches, layers_.size(), "TransformerEncoder"); });
  return step_or_back(caches, [&] {
    Variable y = x;
    for (size_t i = 0; i < layers_.size(); ++i) y = layers_[i].step(y, caches[i], where);
    return norm_ ? (*norm_)(y) : y;
  });
}

TransformerEncoder TransformerEncoder::with_parts(const ClonedParts& parts) const {
  TransformerEncoder copy(*this);
  parts.reset(copy);
  copy.layers_ = parts.of(layers_);
  if (norm_) copy.norm_ = parts.of(*norm_);
  return copy;
}

TransformerDecoder::TransformerDecoder(int64_t layers, int64_t width, int64_t heads,
                                       TransformerOptions options, bool final_norm, Where where)
    : layers_(
          add("layers",
              layers_of<TransformerDecoderLayer>(layers, width, heads, options, "TransformerDecoder", where),
              where)) {
  if (final_norm) norm_ = add("norm", norm_of(width, options, where), where);
}
Variable TransformerDecoder::operator()(const Variable& x, const Variable& memory,
                                        const AttentionMasks& masks, const AttentionMasks& memory_masks,
                                        Where where) const {
  const CallScope scope(where);
  Variable y = x;
  for (const TransformerDecoderLayer& layer : layers_) y = layer(y, memory, masks, memory_masks, where);
  return norm_ ? (*norm_)(y) : y;
}
Variable TransformerDecoder::step(const Variable& x, const Variable& memory, KvCaches& caches,
                                  const AttentionMasks& memory_masks, Where where) const {
  const CallScope scope(where);
  located(where, [&] { make_caches(caches, layers_.size(), "TransformerDecoder"); });
  return step_or_back(caches, [&] {
    Variable y = x;
    for (size_t i = 0; i < layers_.size(); ++i)
      y = layers_[i].step(y, memory, caches[i], memory_masks, where);
    return norm_ ? (*norm_)(y) : y;
  });
}

TransformerDecoder TransformerDecoder::with_parts(const ClonedParts& parts) const {
  TransformerDecoder copy(*this);
  parts.reset(copy);
  copy.layers_ = parts.of(layers_);
  if (norm_) copy.norm_ = parts.of(*norm_);
  return copy;
}

Transformer::Transformer(Sizes sizes, TransformerOptions options, Where where)
    : encoder_(add("encoder",
                   TransformerEncoder(sizes.encoder_layers, sizes.width, sizes.heads, options, true, where),
                   where)),
      decoder_(add("decoder",
                   TransformerDecoder(sizes.decoder_layers, sizes.width, sizes.heads, options, true, where),
                   where)) {}

Variable Transformer::operator()(const Variable& source, const Variable& target, const Masks& masks,
                                 Where where) const {
  const CallScope scope(where);
  return decoder_(target, encoder_(source, masks.source, where), masks.target, masks.memory, where);
}

Transformer Transformer::with_parts(const ClonedParts& parts) const {
  Transformer copy(*this);
  parts.reset(copy);
  copy.encoder_ = parts.of(encoder_);
  copy.decoder_ = parts.of(decoder_);
  return copy;
}

}  // namespace espalier::nn
