// Scaled dot-product attention, and what stands around it.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "espalier/nn/onnx/tensors.h"
#include "espalier/nn/onnx/translate.h"
#include "espalier/ops/views/axis_views.h"

namespace espalier::onnx {

namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// [batch, length, heads · width] as [batch, heads, length, width].
Variable split_heads(const FileNode& node, const Variable& x, int64_t heads) {
  if (x.rank() == 4) return x;
  if (x.rank() != 3 || heads < 1 || x.shape()[2] % heads)
    node.fail(fmt::format("{} has no {} heads", x.shape().str(), heads));
  return permute(unflatten(x, 2, {heads, x.shape()[2] / heads}), {0, 2, 1, 3});
}

/// Positions 0, 1, … of an axis, as integers of the shape [size, 1] or [size].
Variable positions(const FileNode& node, const Variable& x, int64_t axis) {
  if (is_open_axis(x, axis)) node.refuse("masks by position need the size of an open axis");
  node.check_constant({x.shape()[axis]}, int64);
  return Variable(arange(x.shape()[axis], int64));
}

/// What is added to scores: 0 where a key may be read, −∞ elsewhere.
Variable bias_of(const Variable& allowed, DType dtype) {
  return where(allowed, scalar(0, dtype), scalar(minus_infinity, dtype));
}

struct Masks {
  Variable bias;  ///< undefined: nothing is masked
  void add(const Variable& more) { bias = bias.defined() ? bias + more : more; }
};

/// A mask may end before the keys do; those behind it are not read.
Variable given_mask(const FileNode& node, const Variable& keys, DType dtype) {
  Variable mask = node[3];
  const int64_t missing = is_open_axis(keys, 2) ? 0 : keys.shape()[2] - mask.shape()[-1];
  if (mask.dtype() == boolean) mask = bias_of(mask, dtype);
  mask = cast(mask, dtype);
  return missing > 0 ? pad(mask, {{0, missing}}, {.value = minus_infinity}) : mask;
}

Outputs attention(FileNode& node) {
  const int64_t q_heads = node.integer("q_num_heads", 0), kv_heads = node.integer("kv_num_heads", 0);
  const bool causal = node.integer("is_causal", 0) != 0, merged = node[0].rank() == 3;
  const int64_t left = node.integer("left_window_size", -1), right = node.integer("right_window_size", -1);
  const int64_t mode = node.integer("qk_matmul_output_mode", 0);
  const double softcap = node.real("softcap", 0);
  node.ignore("softmax_precision");
  const Variable q = split_heads(node, node[0], q_heads);
  Variable keys = split_heads(node, node[1], kv_heads), values = split_heads(node, node[2], kv_heads);
  const DType dtype = q.dtype(), wide = is_half(dtype) ? float32 : dtype;
  if (node.has(4)) keys = concat({node[4], keys}, 2);
  if (node.has(5)) values = concat({node[5], values}, 2);
  const Variable present_keys = keys, present_values = values;
  const double scale = node.real("scale", 1 / std::sqrt(static_cast<double>(q.shape()[3])));

  Masks masks;
  if (node.has(3)) masks.add(given_mask(node, keys, wide));
  if (causal || left >= 0 || right >= 0) {
    // Query i stands at position i + offset among the keys.
    Variable places = unsqueeze(positions(node, q, 2), 1);
    if (node.has(6))
      places = places + (reshape(cast(node[6], int64), {-1, 1, 1, 1}) - q.shape()[2]);
    else if (node.has(4))
      places = places + node[4].shape()[2];
    const Variable distance = places - positions(node, keys, 2);
    if (causal) masks.add(bias_of(distance >= 0, wide));
    if (left >= 0) masks.add(bias_of(distance <= left, wide));
    if (right >= 0) masks.add(bias_of(distance >= -right, wide));
  }
  if (node.has(6))
    masks.add(bias_of(positions(node, keys, 2) < reshape(cast(node[6], int64), {-1, 1, 1, 1}), wide));

  const int64_t repeats = keys.shape()[1] ? q.shape()[1] / keys.shape()[1] : 1;
  if (repeats > 1) {
    keys = repeat_interleave(keys, repeats, 1);
    values = repeat_interleave(values, repeats, 1);
  }
  const double root = std::sqrt(scale);
  const Variable products = matmul(cast(q, wide) * root, transpose(cast(keys, wide)) * root);
  const Variable capped = softcap > 0 ? tanh(products / softcap) * softcap : products;
  const Variable masked = masks.bias.defined() ? capped + masks.bias : capped;
  Variable weights = softmax(masked, -1);
  if (masks.bias.defined()) {  // a query that may read nothing has weights of 0
    const Variable none = equal(max(masked, -1, true), scalar(minus_infinity, wide));
    weights = where(none, zeros_like(weights), weights);
  }
  Variable y = matmul(cast(cast(weights, dtype), wide), cast(values, wide));
  if (merged) y = merge_axes(permute(y, {0, 2, 1, 3}), {1, 1, 2});
  const Variable shown = mode == 0 ? products : mode == 1 ? capped : mode == 2 ? masked : weights;
  return {cast(y, dtype), present_keys, present_values,
          cast(node.opset() >= 25 || mode != 1 ? shown : capped, dtype)};
}

/// Pairs of elements turned by the angle of their position. Su et al., RoFormer: enhanced transformer with
/// rotary position embedding, 2021.
Outputs rotated(FileNode& node) {
  const int64_t heads = node.integer("num_heads", 0);
  const bool interleaved = node.integer("interleaved", 0) != 0, merged = node[0].rank() == 3;
  int64_t width = node.integer("rotary_embedding_dim", 0);
  // [batch, length, heads, width]
  const Variable x = permute(split_heads(node, node[0], heads), {0, 2, 1, 3});
  const int64_t whole = x.shape()[3];
  if (width == 0) width = whole;
  if (width < 2 || width > whole || width % 2)
    node.fail(fmt::format("{} elements of {} cannot be turned", width, whole));
  const Variable turned = slice(x, 3, 0, width);
  const auto angles = [&](size_t i) {
    const Variable table = node.has(3) ? gather(node[i], node[3], 0) : node[i];
    return unsqueeze(slice(table, -1, 0, width / 2), 2);
  };
  const Variable cosine = angles(1), sine = angles(2);
  const Variable a = interleaved ? slice(turned, 3, 0, open_end, 2) : slice(turned, 3, 0, width / 2),
                 b = interleaved ? slice(turned, 3, 1, open_end, 2) : slice(turned, 3, width / 2, width);
  const Variable real = cosine * a - sine * b, imaginary = sine * a + cosine * b;
  Variable y =
      interleaved ? merge_axes(stack({real, imaginary}, 4), {1, 1, 1, 2}) : concat({real, imaginary}, 3);
  if (width < whole) y = concat({y, slice(x, 3, width, open_end)}, 3);
  return {merged ? merge_axes(y, {1, 1, 2}) : permute(y, {0, 2, 1, 3})};
}

/// A state of keys and values, step by step: Sₜ = decay · Sₜ₋₁ + k ⊗ update, and q · Sₜ. Yang et al., Gated
/// delta networks, 2024.
Outputs linear_attention(FileNode& node) {
  const int64_t q_heads = node.integer("q_num_heads"), kv_heads = node.integer("kv_num_heads");
  const std::string rule = node.text("update_rule", "gated_delta");
  node.ignore("chunk_size");
  const DType dtype = node[0].dtype(), wide = is_half(dtype) ? float32 : dtype;
  const auto headed = [&](size_t i, int64_t heads) { return split_heads(node, cast(node[i], wide), heads); };
  if (node[0].rank() != 3) node.fail("it takes [batch, length, heads · width]");
  const bool gated = rule == "gated" || rule == "gated_delta",
             delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear") node.fail(fmt::format("there is no rule '{}'", rule));
  const Variable q = headed(0, q_heads), k = headed(1, kv_heads), v = headed(2, kv_heads);
  const Variable decay = gated ? exp(headed(4, kv_heads)) : Variable(),
                 rate = delta ? headed(5, node[5].shape()[2] == 1 ? 1 : kv_heads) : Variable();
  if (kv_heads < 1 || q_heads % kv_heads) node.fail("its heads cannot be shared");
  double scale = node.real("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(q.shape()[3]));
  if (is_open_axis(q, 2)) node.refuse("its axis of time is open");
  node.check_steps(q.shape()[2]);
  Variable state = node.has(3) ? cast(node[3], wide) : Variable();
  std::vector<Variable> steps;
  const auto at = [](const Variable& x, int64_t t) { return squeeze(slice(x, 2, t, t + 1), 2); };
  for (int64_t t = 0; t < q.shape()[2]; ++t) {
    const Variable key = unsqueeze(at(k, t), 3);  // [batch, heads, width, 1]
    Variable value = unsqueeze(at(v, t), 2);      // [batch, heads, 1, width of values]
    if (!state.defined()) state = zeros_like(key * value);
    if (gated) state = state * unsqueeze(at(decay, t), 3);
    if (delta) value = (value - matmul(transpose(key), state)) * unsqueeze(at(rate, t), 2);
    state = state + key * value;
    const Variable read = q_heads > kv_heads ? repeat_interleave(state, q_heads / kv_heads, 1) : state;
    steps.push_back(matmul(unsqueeze(at(q, t), 2), read) * scale);
  }
  const Variable y = merge_axes(permute(concat(steps, 2), {0, 2, 1, 3}), {1, 1, 2});
  return {cast(y, dtype), cast(state, node.has(3) ? node[3].dtype() : dtype)};
}

}  // namespace

void add_attention(Registry& all) {
  all.add("Attention", 23, attention);
  all.add("RotaryEmbedding", 23, rotated);
  all.add("LinearAttention", 27, linear_attention);
  all.add("SwiGLU", 28,
          [](FileNode& n) { return Outputs{n[0] * sigmoid(n[0] * n.real("alpha", 1)) * n[1]}; });
}

}  // namespace espalier::onnx
