// The functions of ops/functions/attention.h.
#include "espalier/ops/functions/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/attention/attention_ops.h"

namespace espalier {

namespace {

constexpr std::string_view function = "scaled_dot_product_attention";

AttentionForm checked_form(const AttentionOptions& o, const Variable& q) {
  if (!(o.dropout >= 0 && o.dropout < 1))
    throw Error(fmt::format("{}: the rate of dropout must be in [0, 1), not {}", function, o.dropout));
  if (o.scale && !std::isfinite(*o.scale))
    throw Error(fmt::format("{}: the scale must be finite, not {}", function, *o.scale));
  if (o.past < 0) throw Error(fmt::format("{}: past must not be negative, but is {}", function, o.past));
  if (o.past > 0 && !o.causal)
    throw Error(fmt::format("{}: past is of causal attention, but causal is false", function));
  if (q.rank() < 2)
    throw ShapeError(
        fmt::format("{}: a query has axes [..., heads, queries, width], not {}", function, q.shape().str()));
  const double width = static_cast<double>(q.shape()[-1]);
  return {.scale = o.scale     ? *o.scale
                   : width > 0 ? 1 / std::sqrt(width)
                               : 1,
          .causal = o.causal,
          .past = AttentionForm::bounded(o.past),
          .dropout = o.dropout,
          .masked = o.mask.defined(),
          .keys_masked = o.key_mask.defined(),
          .keyed = o.dropout > 0};
}

/// An attention of a user's call.
struct Call {
  Variable q, k, v;
  std::vector<Variable> options;
  AttentionForm form;

  Call(const Operand& query, const Operand& key, const Operand& value, const AttentionOptions& o)
      : q(query.defined(function)),
        k(key.defined(function)),
        v(value.defined(function)),
        form(checked_form(o, q)) {
    if (form.masked) options.push_back(o.mask);
    if (form.keys_masked) options.push_back(o.key_mask);
    if (form.keyed) options.push_back(attention_keys(q, query.where()));
  }
  AttentionResult result(const std::source_location& where) const {
    return attention(q, k, v, options, form, where);
  }
};

}  // namespace

Variable scaled_dot_product_attention(const Operand& q, const Operand& k, const Operand& v,
                                      const AttentionOptions& options) {
  const CallScope scope(q.where());
  return located(q.where(), [&] { return Call(q, k, v, options).result(q.where()).y; });
}

AttentionAndWeights scaled_dot_product_attention_and_weights(const Operand& q, const Operand& k,
                                                             const Operand& v,
                                                             const AttentionOptions& options) {
  const CallScope scope(q.where());
  return located(q.where(), [&]() -> AttentionAndWeights {
    const Call call(q, k, v, options);
    const AttentionResult result = call.result(q.where());
    const Variable weights = attention_weights(call.q, call.k, result.log_sums, call.options, call.form);
    if (call.form.dropout == 0) return {result.y, weights};
    return {result.y, weights * attention_dropout(call.q, call.k, call.options, call.form)};
  });
}

}  // namespace espalier
