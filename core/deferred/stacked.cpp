#include "espalier/core/deferred/stacked.h"

#include <algorithm>

namespace espalier {

Variable broadcast_to(const Operand& x, const Shape& shape);  // ops/views/reshape.cpp

Shape Stacked::shape(size_t i) const {
  const Shape& whole = inputs_[i].shape();
  return is_shared(i) ? whole : Shape(Dims(whole.begin() + 1, whole.end()));
}

Specs Stacked::infer() const {
  SmallVector<Spec, 4> specs;
  specs.reserve(size());
  InputSpecs inputs;
  for (size_t i = 0; i < size(); ++i) {
    specs.push_back({inputs_[i].dtype(), shape(i)});
    inputs.push_back(&specs[i]);
  }
  return op_->infer(inputs);
}

Shape Stacked::with_rows(const Shape& shape) const {
  Dims dims{rows_};
  dims.append(shape.begin(), shape.end());
  return Shape(std::move(dims));
}

Variable Stacked::stacked(size_t i) const {
  if (!is_shared(i)) return inputs_[i];
  return broadcast_to(inputs_[i], with_rows(inputs_[i].shape()));
}

Gradients batched(const Stacked& in) {
  if (const auto* op = dynamic_cast<const Batchable*>(in.op().get())) return op->batched(in);
  if (!in.op()->is_pointwise()) return {};
  size_t rank = 0;
  for (size_t i = 0; i < in.size(); ++i) rank = std::max(rank, in.rank(i));
  SmallVector<Variable, 4> aligned;
  for (size_t i = 0; i < in.size(); ++i) {
    if (in.is_shared(i) || in.rank(i) == rank) {
      aligned.push_back(in[i]);
      continue;
    }
    const Shape own = in.shape(i);
    Dims dims(rank - own.rank(), 1);
    dims.append(own.begin(), own.end());
    aligned.push_back(in[i].reshape(in.with_rows(Shape(std::move(dims)))));
  }
  SmallVector<const Variable*, 4> inputs;
  for (const Variable& v : aligned) inputs.push_back(&v);
  return {apply(in.op(), {inputs.data(), inputs.size()}, std::source_location::current())};
}

InputSet row_inputs(const Op& op, const InputSpecs& in) {
  if (const auto* own = dynamic_cast<const Batchable*>(&op)) return own->row_inputs(in);
  InputSet rows = InputSet::none();
  if (!op.is_pointwise() || in.size() > 63) return rows;
  size_t rank = 0;
  for (const Spec* spec : in) rank = std::max(rank, spec->shape.rank());
  for (size_t i = 0; i < in.size(); ++i)
    if (rank > 0 && in[i]->shape.rank() == rank) rows.bits |= uint64_t{1} << i;
  return rows;
}

}  // namespace espalier
