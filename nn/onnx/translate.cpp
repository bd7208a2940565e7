#include "espalier/nn/onnx/translate.h"

#include <fmt/format.h>

namespace espalier::onnx {

Variable computable(const Variable& x) { return is_small_integer(x.dtype()) ? cast(x, int32) : x; }

Variable second_operand(const FileNode& node) {
  Variable b = node[1];
  if (node.opset() >= 7) return b;
  node.ignore("consumed_inputs");
  if (node.integer("broadcast", 0) == 0 || !node.has("axis")) {
    node.ignore("axis");
    return b;
  }
  const int64_t axis = axis_of(node, node[0], node.integer("axis")), last = axis + rank_of(b);
  if (last > rank_of(node[0]))
    node.fail(fmt::format("{} has no axes for {} from {} on", node[0].shape().str(), b.shape().str(), axis));
  for (int64_t i = last; i < rank_of(node[0]); ++i) b = unsqueeze(b, -1);
  return b;
}

int64_t axis_of(const FileNode& node, const Variable& x, int64_t axis) {
  const int64_t rank = rank_of(x);
  if (axis < -rank || axis >= rank)
    node.fail(fmt::format("there is no axis {} in shape {}", axis, x.shape().str()));
  return axis < 0 ? axis + rank : axis;
}

void check_lengths(const FileNode& node, const std::vector<int64_t>& lengths) {
  constexpr int64_t longest = int64_t{1} << 40;
  for (const int64_t length : lengths)
    if (length < -longest || length > longest)
      node.fail(fmt::format("a length of {} is out of range", length));
}

Dims axes_up_to(int64_t rank) {
  Dims axes;
  for (int64_t axis = 0; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

Variable shaped_like(const FileNode& node, const std::vector<Size>& sizes, DType dtype) {
  Shape numbers;
  for (const Size& size : sizes)
    if (size.is_number()) numbers.dims().push_back(size.number);
  node.check_constant(numbers, dtype);
  return shaped_as(sizes);
}

Variable scalar(double value, DType dtype) {
  return Variable(is_real(dtype) ? tensor(value, float64).to(dtype)
                                 : tensor(static_cast<int64_t>(value)).to(dtype));
}

}  // namespace espalier::onnx
