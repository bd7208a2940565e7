#include "espalier/core/channels_last.h"

#include <algorithm>

#include "espalier/core/op_registry.h"

namespace espalier {

int64_t channels_last_axis(size_t axis, size_t rank) {
  return static_cast<int64_t>(axis == 0 ? 0 : axis == 1 ? rank - 1 : axis - 1);
}
Shape with_channels_last(const Shape& shape) {
  Shape result = shape;
  if (shape.rank() > 2)
    std::rotate(result.dims().begin() + 1, result.dims().begin() + 2, result.dims().end());
  return result;
}
Shape with_channels_second(const Shape& shape) {
  Shape result = shape;
  if (shape.rank() > 2) std::rotate(result.dims().begin() + 1, result.dims().end() - 1, result.dims().end());
  return result;
}

ChannelsLastOp along_axis_with_channels_last(const Op& op, const InputSpecs& inputs, const Spec& output,
                                             InputSet moved) {
  const size_t rank = output.shape.rank();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (moved.contains(i) && inputs[i]->shape.rank() != rank) return {};
  const size_t axis = resolve_axis(attribute<int64_t>(op, "axis"), rank, op.name());
  return {.op = with_attribute(op, "axis", channels_last_axis(axis, rank)), .moved = moved};
}

}  // namespace espalier
