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
          .past = o.past,
          .dropout = o.dropout,
          .masked = o.mask.defined(),
          .keys_masked = o.key_mask.defined(),
          .keyed = o.dropout > 0};
}

}  // namespace

Variable scaled_dot_product_attention(const Operand& q, const Operand& k, const Operand& v,
                                      const AttentionOptions& options) {
  const CallScope scope(q.where());
  return located(q.where(), [&] {
    const Variable &query = q.defined(function), &key = k.defined(function), &value = v.defined(function);
    const AttentionForm form = checked_form(options, query);
    std::vector<Variable> more;
    if (form.masked) more.push_back(options.mask);
    if (form.keys_masked) more.push_back(options.key_mask);
    if (form.keyed) more.push_back(attention_keys(query, q.where()));
    return attention(query, key, value, more, form, q.where()).y;
  });
}

}  // namespace espalier
