#include "espalier/nn/multi_head_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/leaf_substitutes.h"
#include "espalier/core/node.h"
#include "espalier/core/open_note.h"
#include "espalier/core/open_sizes.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

constexpr std::string_view kind = "MultiHeadAttention";

int64_t checked_heads(int64_t width, int64_t heads, const MultiHeadAttentionOptions& o) {
  const int64_t key_heads = o.key_heads ? o.key_heads : heads;
  if (width <= 0 || heads <= 0 || width % heads)
    throw Error(fmt::format("{}: a width of {} does not divide into {} heads", kind, width, heads));
  if (key_heads <= 0 || heads % key_heads)
    throw Error(fmt::format("{}: {} heads are no multiple of {} heads of keys", kind, heads, key_heads));
  if (o.key_width < 0 || o.value_width < 0)
    throw Error(fmt::format("{}: keys of width {} and values of width {}", kind, o.key_width, o.value_width));
  if (!(o.dropout >= 0 && o.dropout < 1))
    throw Error(fmt::format("{}: the rate of dropout must be in [0, 1), not {}", kind, o.dropout));
  if (!is_real(o.dtype))
    throw TypeError(fmt::format("{}: the dtype must be a real one, not {}", kind, name(o.dtype)));
  return key_heads;
}

void check_input(const Variable& x, int64_t width, DType dtype, std::string_view what) {
  if (x.rank() != 3 || x.shape()[2] != width)
    throw ShapeError(fmt::format("{}: {} are [batch, time, {}], not {}{}", kind, what, width, x.shape().str(),
                                 x.rank() == 3 ? open_note(x.shape()[2], width) : ""));
  if (x.dtype() != dtype)
    throw TypeError(
        fmt::format("{}: {} are {} and the parameters {}", kind, what, name(x.dtype()), name(dtype)));
}

bool same(const Variable& a, const Variable& b) { return a.node() == b.node() && a.output() == b.output(); }

/// A mask with a further key that every query sees.
Variable with_one_more(const Variable& mask) {
  if (!mask.defined() || mask.shape()[-1] == 1) return mask;
  const Variable last = slice(mask, -1, 0, 1);
  return concat({mask, mask.dtype() == DType::boolean ? full_like(last, 1) : zeros_like(last)}, -1);
}

/// The product with rows `begin` to `end` of the weight of all three, or with a weight of its own.
Variable projected(const Variable& x, const Variable& all, const Variable& own, const Variable& bias,
                   int64_t begin, int64_t end) {
  const Variable weight = all.defined() ? slice(all, 0, begin, end) : own;
  return linear(x, weight, bias.defined() ? slice(bias, 0, begin, end) : bias);
}

/// Keys or values with a learned one behind.
Variable with_last(const Variable& x, const Variable& last) {
  if (!last.defined()) return x;
  return concat({x, zeros_like(slice(x, 1, 0, 1)) + last}, 1);
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(int64_t width, int64_t heads, MultiHeadAttentionOptions options,
                                       Where where)
    : width_(width),
      heads_(heads),
      key_heads_(located(where, [&] { return checked_heads(width, heads, options); })),
      options_(std::move(options)),
      out_(width, width, {.bias = options_.bias, .dtype = options_.dtype}, where) {
  const CallScope scope(where);
  const int64_t projected = key_heads_ * (width / heads);
  if (options_.key_width == 0) options_.key_width = width;
  if (options_.value_width == 0) options_.value_width = width;
  const auto parameter = [&](const char* name, const Shape& shape, const init::Initializer& initial) {
    return add_parameter(name, initial(shape, options_.dtype), where);
  };
  if (options_.key_width == width && options_.value_width == width) {
    weight_ = parameter("in_proj_weight", {width + 2 * projected, width}, init::XavierUniform());
  } else {
    q_weight_ = parameter("q_proj_weight", {width, width}, init::XavierUniform());
    k_weight_ = parameter("k_proj_weight", {projected, options_.key_width}, init::XavierUniform());
    v_weight_ = parameter("v_proj_weight", {projected, options_.value_width}, init::XavierUniform());
  }
  if (options_.bias) bias_ = parameter("in_proj_bias", {width + 2 * projected}, init::Zeros());
  if (options_.add_bias_kv) {
    bias_k_ = parameter("bias_k", {1, 1, projected}, init::XavierNormal());
    bias_v_ = parameter("bias_v", {1, 1, projected}, init::XavierNormal());
  }
  add("out_proj", out_, where);
}

MultiHeadAttention MultiHeadAttention::with_parts(const ClonedParts& parts) const {
  MultiHeadAttention copy(*this);
  parts.reset(copy);
  for (Variable* leaf : {&copy.weight_, &copy.q_weight_, &copy.k_weight_, &copy.v_weight_, &copy.bias_,
                         &copy.bias_k_, &copy.bias_v_})
    *leaf = parts.of(*leaf);
  copy.out_ = parts.of(out_);
  return copy;
}

Variable MultiHeadAttention::split(const Variable& x, int64_t heads) const {
  return transpose(unflatten(x, 2, {heads, width_ / heads_}), {0, 2, 1, 3});
}
Variable MultiHeadAttention::joined(const Variable& y) const {
  return out_(flatten(transpose(y, {0, 2, 1, 3}), 2));
}

MultiHeadAttention::Part MultiHeadAttention::part(int which) const {
  const int64_t projected = key_heads_ * (width_ / heads_);
  if (which == 0) return {0, width_};
  return {width_ + (which - 1) * projected, width_ + which * projected};
}

Variable MultiHeadAttention::turned(const Variable& heads, int64_t past) const {
  if (!options_.rotary) return heads;
  RotaryOptions turn = *options_.rotary;
  turn.offset += past;
  return rotary(heads, turn);
}

MultiHeadAttention::Heads MultiHeadAttention::heads_of_keys(Variable k, Variable v, int64_t past) const {
  k = split(with_last(k, bias_k_), key_heads_);
  return {{}, turned(k, past), split(with_last(v, bias_v_), key_heads_)};
}

Variable MultiHeadAttention::project_queries(const Variable& query, int64_t past) const {
  const auto [begin, end] = part(0);
  return turned(split(projected(query, weight_, q_weight_, bias_, begin, end), heads_), past);
}

MultiHeadAttention::Heads MultiHeadAttention::project_keys(const Variable& key, const Variable& value,
                                                           int64_t past) const {
  const Part k = part(1), v = part(2);
  return heads_of_keys(projected(key, weight_, k_weight_, bias_, k.begin, k.end),
                       projected(value, weight_, v_weight_, bias_, v.begin, v.end), past);
}

MultiHeadAttention::Heads MultiHeadAttention::project(const Variable& query, const Variable& key,
                                                      const Variable& value, int64_t past) const {
  check_input(query, width_, options_.dtype, "queries");
  check_input(key, options_.key_width, options_.dtype, "keys");
  check_input(value, options_.value_width, options_.dtype, "values");
  if (!weight_.defined() || !same(query, key) || !same(key, value)) {
    const Variable q = project_queries(query, past);
    const Heads keys = project_keys(key, value, past);
    return {q, keys.k, keys.v};
  }
  const Variable all = linear(query, weight_, bias_);
  const auto of = [&](int which) {
    const auto [begin, end] = part(which);
    return slice(all, 2, begin, end);
  };
  const Variable q = turned(split(of(0), heads_), past);
  const Heads keys = heads_of_keys(of(1), of(2), past);
  return {q, keys.k, keys.v};
}

/// A mask with what `alibi` adds to the scores of these queries and keys.
Variable MultiHeadAttention::with_slopes(const Variable& mask, const Variable& queries, const Variable& keys,
                                         int64_t past) const {
  Variable added;
  if (is_open_axis(queries, 2) || is_open_axis(keys, 2)) {
    const Variable slopes(alibi_slopes(heads_).to(keys.device()));
    const Variable distance = unsqueeze(arange_like(queries, 2, float64), -1) + static_cast<double>(past) -
                              arange_like(keys, 2, float64);
    added = cast(reshape(slopes, {heads_, 1, 1}) * -abs(distance), keys.dtype());
  } else {
    added = alibi(heads_, queries.shape()[2], keys.shape()[2], past, keys.dtype()).to(keys.device());
  }
  if (!mask.defined()) return added;
  if (mask.dtype() != DType::boolean) return mask + added;
  return where(mask, added, full_like(added, -std::numeric_limits<double>::infinity()));
}

AttentionOptions MultiHeadAttention::options_for(const AttentionMasks& masks, const Variable& queries,
                                                 const Variable& keys, int64_t past) const {
  if (masks.causal && bias_k_.defined())
    throw UnsupportedError(fmt::format(
        "{}: the learned key behind the others is hidden by .causal; give the causal mask as .mask", kind));
  AttentionOptions o{.mask = masks.mask, .key_mask = masks.key_mask, .causal = masks.causal, .past = past};
  if (bias_k_.defined()) {
    o.mask = with_one_more(o.mask);
    o.key_mask = with_one_more(o.key_mask);
  }
  if (options_.alibi) o.mask = with_slopes(o.mask, queries, keys, past);
  if (training()) o.dropout = options_.dropout;
  return o;
}

Variable MultiHeadAttention::operator()(const Variable& x, Where where) const {
  return (*this)(x, x, x, {}, where);
}
Variable MultiHeadAttention::operator()(const Variable& x, const AttentionMasks& masks, Where where) const {
  return (*this)(x, x, x, masks, where);
}

Variable MultiHeadAttention::operator()(const Variable& query, const Variable& key, const Variable& value,
                                        const AttentionMasks& masks, Where where) const {
  const CallScope scope(where);
  return located(*build_context().where, [&] {
    const Heads h = project(query, key, value, 0);
    const AttentionOptions o = options_for(masks, h.q, h.k, 0);
    return joined(scaled_dot_product_attention(h.q, h.k, h.v, o));
  });
}

MultiHeadAttention::WithWeights MultiHeadAttention::with_weights(const Variable& query, const Variable& key,
                                                                 const Variable& value,
                                                                 const AttentionMasks& masks, bool average,
                                                                 Where where) const {
  const CallScope scope(where);
  return located(*build_context().where, [&]() -> WithWeights {
    const Heads h = project(query, key, value, 0);
    const AttentionOptions o = options_for(masks, h.q, h.k, 0);
    const auto [y, weights] = scaled_dot_product_attention_and_weights(h.q, h.k, h.v, o);
    return {joined(y), average ? mean(weights, 1) : weights};
  });
}

Variable MultiHeadAttention::step(const Variable& x, KvCache& cache, Where where) const {
  const CallScope scope(where);
  return located(*build_context().where, [&] {
    if (bias_k_.defined())
      throw UnsupportedError(fmt::format("{}: the learned key behind the others cannot be cached", kind));
    const int64_t past = cache.length();
    const Heads h = project(x, x, x, past);
    cache.append(h.k, h.v, *build_context().where);
    const Variable keys = cache.keys();
    const AttentionOptions o = options_for({.causal = true}, h.q, keys, past);
    return joined(scaled_dot_product_attention(h.q, keys, cache.values(), o));
  });
}

std::vector<Variable> MultiHeadAttention::parameters_of_keys() const {
  std::vector<Variable> list;
  for (const Variable* x : {&weight_, &k_weight_, &v_weight_, &bias_, &bias_k_, &bias_v_})
    if (x->defined()) list.push_back(*x);
  return list;
}

/// Whether the cache has the keys and values of this memory by the parameters as they are.
bool MultiHeadAttention::is_current(const KvCache::Projected& projected, const Variable& memory) const {
  const auto unchanged = [&](const Variable& x) { return x.node()->version <= projected.written; };
  return same(projected.attended, memory) && unchanged(memory) &&
         projected.no_grad == build_context().no_grad &&
         std::ranges::equal(projected.parameters, parameters_of_keys(), same) &&
         std::ranges::all_of(projected.parameters, unchanged);
}

MultiHeadAttention::Heads MultiHeadAttention::keys_of_memory(const Variable& memory, KvCache& cache) const {
  const auto known = cache.projected_;
  if (!leaf_substitutes() && known && is_current(*known, memory)) return {{}, known->keys, known->values};
  Heads keys = project_keys(memory, memory, 0);
  const uint64_t written = std::min(keys.k.node()->id, keys.v.node()->id);
  const Tensor rows = known && same(known->attended, memory) ? known->rows : Tensor();
  if (rows.defined()) keys.k = gather(keys.k, rows), keys.v = gather(keys.v, rows);
  if (!leaf_substitutes())
    cache.projected_ = std::make_shared<const KvCache::Projected>(KvCache::Projected{
        memory, keys.k, keys.v, parameters_of_keys(), written, build_context().no_grad, rows});
  return keys;
}

Variable MultiHeadAttention::step(const Variable& x, const Variable& memory, KvCache& cache,
                                  const AttentionMasks& masks, Where where) const {
  const CallScope scope(where);
  return located(*build_context().where, [&] {
    if (options_.rotary || options_.alibi)
      throw UnsupportedError(fmt::format(
          "{}: steps that attend to a memory have no positions, which .rotary and .alibi need", kind));
    check_input(x, width_, options_.dtype, "queries");
    check_input(memory, options_.key_width, options_.dtype, "keys");
    check_input(memory, options_.value_width, options_.dtype, "values");
    const Variable q = project_queries(x, 0);
    const Heads keys = keys_of_memory(memory, cache);
    if (keys.k.shape()[0] != q.shape()[0])
      throw ShapeError(
          fmt::format("{}: {} rows of queries and a memory of {}", kind, q.shape()[0], memory.shape().str()));
    return joined(scaled_dot_product_attention(q, keys.k, keys.v, options_for(masks, q, keys.k, 0)));
  });
}

}  // namespace espalier::nn
