// A transformer block, written with layers and operations.
#pragma once
#include <cmath>
#include <utility>

#include "espalier/nn/activation.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/layer_norm.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"

namespace espalier::testing {

inline constexpr int64_t words = 7, time_steps = 6, heads = 2, width = 8;

/// The attention mask: element (i, j) is true if position i may attend to position j.
inline Tensor causal(int64_t n) {
  Tensor mask = zeros({n, n}, boolean);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) mask.at<bool>({i, j}) = true;
  return mask;
}

/// [rows, time, width] as [rows, heads, time, width / heads].
inline Variable split_heads(const Variable& x) {
  const int64_t time = x.shape()[1], each = x.shape()[2] / heads;
  return transpose(reshape(x, {-1, time, heads, each}), {0, 2, 1, 3});
}

inline Variable attend(const Variable& q, const Variable& k, const Variable& v) {
  const int64_t time = q.shape()[1], all = q.shape()[2];
  const Variable scores =
      matmul(split_heads(q), transpose(split_heads(k))) / std::sqrt(static_cast<double>(all / heads));
  const Variable weights = softmax(where(causal(time), scores, -1e9));
  const Variable seen = matmul(weights, split_heads(v));
  return reshape(transpose(seen, {0, 2, 1, 3}), {-1, time, all});
}

struct Block : nn::Module {
  Variable operator()(const Variable& x) {
    const Variable n = before_attention(x);
    const Variable y = x + join(attend(query(n), key(n), value(n)));
    return y + narrow(gelu(widen(before_mlp(y))));
  }
  nn::LayerNorm before_attention = add("before_attention", nn::LayerNorm());
  nn::Dense query = add("query", nn::Dense(width)), key = add("key", nn::Dense(width)),
            value = add("value", nn::Dense(width));
  nn::Dense join = add("join", nn::Dense(width));
  nn::LayerNorm before_mlp = add("before_mlp", nn::LayerNorm());
  nn::Dense widen = add("widen", nn::Dense(4 * width)), narrow = add("narrow", nn::Dense(width));
};

struct Model : nn::Module {
  /// The loss of next-token prediction.
  Variable operator()(const Variable& tokens, const Variable& next) {
    const Variable place = position(arange(time_steps, int64));
    const Variable logits = head(last(block(embed(tokens) + place)));
    return nn::SoftmaxCrossEntropy()(reshape(logits, {-1, words}), flatten(next));
  }
  nn::Embedding embed = add("embed", nn::Embedding(words, width));
  nn::Embedding position = add("position", nn::Embedding(time_steps, width));
  Block block = add("block", Block());
  nn::LayerNorm last = add("last", nn::LayerNorm());
  nn::Dense head = add("head", nn::Dense(words));
};

/// Sequences of two alternating tokens: each next token equals the one two positions earlier.
inline std::pair<Tensor, Tensor> sequences(int64_t count) {
  Tensor tokens({count, time_steps}, int64), next({count, time_steps}, int64);
  for (int64_t row = 0; row < count; ++row)
    for (int64_t i = 0; i < time_steps; ++i) {
      const int64_t pair[] = {row % words, row / words % words};
      tokens.at<int64_t>({row, i}) = pair[i % 2];
      next.at<int64_t>({row, i}) = pair[(i + 1) % 2];
    }
  return {tokens, next};
}

}  // namespace espalier::testing
