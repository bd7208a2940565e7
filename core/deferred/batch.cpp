#include "espalier/core/deferred/batch.h"

namespace espalier {

Variable computed_form(const Node& node, uint32_t output) {
  const Variable all = node.batch->outputs[output].variable();
  return node.batch->stacked ? row_of(all, node.place) : all;
}

}  // namespace espalier
