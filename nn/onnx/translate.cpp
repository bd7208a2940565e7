#include "espalier/nn/onnx/translate.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/node.h"

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

Variable scalar(double value, DType dtype) {
  return Variable(is_real(dtype) ? tensor(value, float64).to(dtype)
                                 : tensor(static_cast<int64_t>(value)).to(dtype));
}

bool is_open(const Variable& x, int64_t axis) { return x.node()->lazy && is_open_size(x.shape()[axis]); }

Variable reshape_open(const FileNode& node, const Variable& x, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> to = sizes;
  if (!x.node()->lazy) return reshape(x, Shape(to));
  // Behind open axes that stay, a size that the file leaves open is that of the elements that are left.
  const auto left = std::ranges::find(to, -1);
  const auto place = static_cast<size_t>(left - to.begin());
  bool stays = left != to.end() && place < x.rank() && std::ranges::any_of(to, is_open_size);
  for (size_t axis = 0; stays && axis < place; ++axis)
    stays = to[axis] == x.shape()[static_cast<int64_t>(axis)];
  if (stays && std::none_of(x.shape().begin() + place, x.shape().end(), is_open_size)) {
    const int64_t elements = Shape(Dims(x.shape().begin() + place, x.shape().end())).elements();
    const Shape rest(std::vector<int64_t>(left, to.end()));
    *left = resolve(rest, elements, "Reshape")[0];
  }
  int64_t left_open = 0;
  for (int64_t& size : to) {
    if (is_open_size(size)) size = -1;
    left_open += size == -1;
  }
  // The first axis of a placeholder may have another size in each run, though it has a number here.
  if (left_open == 0 && !to.empty() && x.rank() > 0 && x.shape().elements() > 0 && to[0] == x.shape()[0]) {
    to[0] = -1;
    left_open = 1;
  }
  if (left_open <= 1) return reshape(x, Shape(to));
  // Several open axes: those in front stay as they are, and the others are divided or merged.
  size_t same = 0;
  while (same < to.size() && same < x.rank() &&
         (to[same] == -1 ? is_open(x, static_cast<int64_t>(same))
                         : to[same] == x.shape()[static_cast<int64_t>(same)]))
    ++same;
  const std::vector<int64_t> rest(to.begin() + static_cast<int64_t>(same), to.end());
  const auto first = static_cast<int64_t>(same);
  if (same + 1 == x.rank() && !rest.empty()) return unflatten(x, first, Shape(rest));
  if (same < x.rank() && rest.size() == 1) return flatten(x, first);
  node.refuse(
      fmt::format("shape {} with several open axes cannot become {}; give axes a size (LoadOptions::sizes)",
                  x.shape().str(), Shape(to).str()));
}

}  // namespace espalier::onnx
