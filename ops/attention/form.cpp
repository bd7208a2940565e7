#include "espalier/ops/attention/form.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

namespace {

/// The shape of the scores.
Shape scores_of(const Shape& q, const Shape& k) {
  Shape scores = q;
  scores.dims()[q.rank() - 1] = k[-2];
  return scores;
}

void check_mask(const Spec& mask, const Spec& q, const Shape& scores, std::string_view op) {
  if (mask.dtype != DType::boolean && mask.dtype != q.dtype)
    throw TypeError(fmt::format("{}: a mask is {} or as the query {}, not {}", op, name(DType::boolean),
                                name(q.dtype), name(mask.dtype)));
  bool fits = mask.shape.rank() <= scores.rank();
  for (size_t i = 0; fits && i < mask.shape.rank(); ++i) {
    const int64_t own = mask.shape.dims()[mask.shape.rank() - 1 - i];
    fits = own == 1 || own == scores.dims()[scores.rank() - 1 - i];
  }
  if (!fits)
    throw ShapeError(fmt::format("{}: a mask of shape {} cannot be broadcast to the scores, {}", op,
                                 mask.shape.str(), scores.str()));
}

void check_key_mask(const Spec& mask, const Shape& scores, std::string_view op) {
  if (mask.dtype != DType::boolean)
    throw TypeError(fmt::format("{}: key_mask is {}, not {}", op, name(DType::boolean), name(mask.dtype)));
  Shape expected;
  for (size_t i = 0; i + 3 < scores.rank(); ++i) expected.dims().push_back(scores.dims()[i]);
  expected.dims().push_back(scores[-1]);
  if (!(mask.shape == expected))
    throw ShapeError(fmt::format("{}: key_mask has shape {} instead of {}, for scores of shape {}", op,
                                 mask.shape.str(), expected.str(), scores.str()));
}

}  // namespace

void AttentionForm::check_keys(const Spec& keys, const Shape& q, std::string_view op) {
  if (keys.dtype != DType::int64 || !std::equal(q.begin(), q.end() - 2, keys.shape.begin(), keys.shape.end()))
    throw ShapeError(fmt::format("{}: keys of dropout are {} {} for queries of shape {}", op,
                                 name(keys.dtype), keys.shape.str(), q.str()));
}

Attributes AttentionForm::attributes() const {
  return {{"scale", scale},   {"causal", causal},           {"past", past},  {"dropout", dropout},
          {"masked", masked}, {"keys_masked", keys_masked}, {"keyed", keyed}};
}

AttentionForm AttentionForm::read(AttributeReader& a) {
  AttentionForm form;
  form.scale = a.real("scale");
  form.causal = a.flag("causal");
  form.past = bounded(a.integer("past", 0));
  form.dropout = a.real("dropout");
  form.masked = a.flag("masked");
  form.keys_masked = a.flag("keys_masked");
  form.keyed = a.flag("keyed");
  if (!std::isfinite(form.scale)) a.refuse("scale");
  if (!(form.dropout >= 0 && form.dropout < 1)) a.refuse("dropout");
  if (form.dropout > 0 && !form.keyed) a.refuse("keyed");
  return form;
}

AttentionForm AttentionForm::of(const Op& op) {
  const Attributes attributes = op.attributes();
  AttributeReader reader(op.name(), attributes);
  return read(reader);
}

void AttentionForm::check_operands(const Spec& query, const Shape& k, const Shape& v, std::string_view op) {
  const Shape& q = query.shape;
  check_dtype<Reals>(query, op);
  const size_t rank = q.rank();
  const auto refuse = [&](std::string_view why) {
    throw ShapeError(fmt::format(
        "{}: takes q [..., heads, queries, width], k [..., key_heads, keys, width] and v [..., key_heads, "
        "keys, value_width], not {}, {} and {}: {}",
        op, q.str(), k.str(), v.str(), why));
  };
  if (rank < 2 || k.rank() != rank || v.rank() != rank) refuse("they have as many axes, at least two");
  if (q[-1] != k[-1]) refuse("queries and keys have one width");
  if (k[-2] != v[-2]) refuse("there is a value for each key");
  for (size_t i = 0; i + 2 < rank; ++i) {
    const int64_t a = q.dims()[i], b = k.dims()[i];
    if (b != v.dims()[i]) refuse("keys and values have the same leading axes");
    if (i + 3 < rank ? a != b : a != b && (b == 0 || a % b != 0))
      refuse(i + 3 < rank ? "all have the same leading axes" : "heads are a multiple of key_heads");
  }
}

Shape AttentionForm::output(const InputSpecs& in, size_t first, std::string_view op) const {
  if (in.size() != first + options())
    throw ShapeError(fmt::format("{}: {} operands, not {}", op, in.size(), first + options()));
  const Shape &q = in[0]->shape, &k = in[1]->shape, &v = in[2]->shape;
  check_operands(*in[0], k, v, op);
  check_same_dtype(*in[0], *in[1], op);
  check_same_dtype(*in[0], *in[2], op);
  const size_t rank = q.rank();
  const Shape scores = scores_of(q, k);
  if (masked) check_mask(*in[mask_at(first)], *in[0], scores, op);
  if (keys_masked) check_key_mask(*in[key_mask_at(first)], scores, op);
  if (keyed) check_keys(*in[keys_at(first)], q, op);
  Shape result = q;
  result.dims()[rank - 1] = v[-1];
  return result;
}

AttentionSizes::AttentionSizes(const Shape& q, const Shape& k, const Shape& v)
    : queries(q[-2]), keys(k[-2]), width(q[-1]), value_width(v[-1]) {
  const size_t rank = q.rank();
  for (size_t i = 0; i + 3 < rank; ++i) batch *= q.dims()[i];
  if (rank > 2) {
    heads = q.dims()[rank - 3];
    key_heads = k.dims()[rank - 3];
  }
}

}  // namespace espalier
