#include "espalier/core/deferred/batch.h"

namespace espalier {

ReadPlace read_place(const Edge& operand) {
  const Node& node = *operand.node();
  if (!node.batch) return {operand};
  const Edge& computed = node.batch->outputs[operand.output()];
  if (node.has_value() && !computed.node()->has_value()) return {operand};
  switch (node.batch->form) {
    case BatchForm::rows: return {operand};
    case BatchForm::row: return {computed, static_cast<int32_t>(node.place)};
    case BatchForm::whole: break;
  }
  return {computed};
}

Variable computed_form(const Node& node, uint32_t output) {
  return part_of_batch(*node.batch, node, output, node.batch->outputs[output].variable());
}

Variable part_of_batch(const Batch& batch, const Node& node, uint32_t output, const Variable& all) {
  switch (batch.form) {
    case BatchForm::rows: return row_range(all, node.place, 1, node.outputs[output].spec.shape.dims()[0]);
    case BatchForm::row: return row_of(all, node.place);
    case BatchForm::whole: break;
  }
  return all;
}

Variable put_into_batch(const Node& node, uint32_t output, const Variable& gradient) {
  const Variable all = node.batch->outputs[output].variable();
  switch (node.batch->form) {
    case BatchForm::rows: return put_rows_like(gradient, all, node.place);
    case BatchForm::row: return put_row_like(gradient, all, node.place);
    case BatchForm::whole: break;
  }
  return gradient;
}

}  // namespace espalier
