#include "espalier/core/deferred/batch.h"

namespace espalier {

ReadPlace read_place(const Edge& operand) {
  const Node& node = *operand.node();
  if (!node.batch) return {operand};
  const Edge& computed = node.batch->outputs[operand.output()];
  if (node.has_value() && !computed.node()->has_value()) return {operand};
  return {computed, node.batch->stacked ? static_cast<int32_t>(node.place) : -1};
}

Variable computed_form(const Node& node, uint32_t output) {
  const Variable all = node.batch->outputs[output].variable();
  return node.batch->stacked ? row_of(all, node.place) : all;
}

}  // namespace espalier
