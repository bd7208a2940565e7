// Attention.
#include "bridge.h"

namespace peers {
namespace {

using namespace espalier;

AttentionOptions options(const Case& c) {
  AttentionOptions o{.causal = c.flag("causal")};
  if (c.has("past")) o.past = c.integer("past");
  if (c.has("scale")) o.scale = c.real("scale");
  if (c.has("mask")) o.mask = c[static_cast<size_t>(c.integer("mask"))];
  if (c.has("key_mask")) o.key_mask = c[static_cast<size_t>(c.integer("key_mask"))];
  return o;
}

}  // namespace

std::vector<Row> attention_rows() {
  return {
      {"scaled_dot_product_attention",
       [](const Case& c) -> Outputs { return scaled_dot_product_attention(c[0], c[1], c[2], options(c)); }},
      {"scaled_dot_product_attention_and_weights",
       [](const Case& c) -> Outputs {
         const auto [y, weights] = scaled_dot_product_attention_and_weights(c[0], c[1], c[2], options(c));
         return {y, weights};
       }},
  };
}

}  // namespace peers
