// Shapes, and elements in another order.
#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/autograd.h"
#include "espalier/core/node.h"
#include "espalier/nn/onnx/translate.h"
#include "espalier/ops/views/axis_views.h"

namespace espalier::onnx {

namespace {

/// Attribute or input 1, depending on the version.
std::vector<int64_t> axes_attribute_or_input(const FileNode& node) {
  if (node.has("axes")) return node.integers("axes");
  return node.has(1) ? node.integers(1) : std::vector<int64_t>{};
}

Outputs reshaped(FileNode& node) {
  const Variable& x = node[0];
  const bool zeros_stay = node.integer("allowzero", 0) != 0;
  if (node.has(1) && node.value(1).shape_of.defined()) return {reshape_like(x, node.value(1).shape_of)};
  std::vector<Size> sizes;
  if (node.has("shape"))
    for (const int64_t size : node.integers("shape")) sizes.push_back({size});
  else
    sizes = node.sizes(1);
  for (size_t axis = 0; axis < sizes.size(); ++axis)
    if (sizes[axis].is_number() && sizes[axis].number == 0 && !zeros_stay) {
      if (axis >= x.rank()) node.fail(fmt::format("shape {} has no axis {} to keep", x.shape().str(), axis));
      sizes[axis] = size_of_axis(x, static_cast<int64_t>(axis));
    }
  return {reshape_to(x, sizes)};
}

Outputs flattened(FileNode& node) {
  const Variable& x = node[0];
  int64_t axis = node.integer("axis", 1);
  if (axis < -rank_of(x) || axis > rank_of(x))
    node.fail(fmt::format("there is no axis {} in {}", axis, x.shape().str()));
  if (axis < 0) axis += rank_of(x);
  if (axis == 0) return {unsqueeze(x.rank() ? flatten(x, 0) : unsqueeze(x, 0), 0)};
  if (axis == rank_of(x)) return {unsqueeze(flatten(x, 0), 1)};
  const int64_t behind = Shape(Dims(x.shape().begin() + axis, x.shape().end())).elements();
  if (axis == 1) return {flatten(x, 1)};
  if (has_open_axes(x, static_cast<size_t>(axis)) && x.shape().elements() != 0)
    node.refuse("its second axis would be made of open axes");
  if (behind == 0 || x.shape().elements() == 0) {
    const int64_t before = Shape(Dims(x.shape().begin(), x.shape().begin() + axis)).elements();
    return {reshape(x, {before, behind})};
  }
  return {reshape(x, {-1, behind})};
}

Outputs transposed(FileNode& node) {
  const Variable& x = node[0];
  std::vector<int64_t> order = node.integers("perm");
  if (order.empty())
    for (int64_t axis = rank_of(x) - 1; axis >= 0; --axis) order.push_back(axis);
  if (order.size() != x.rank())
    node.fail(fmt::format("it orders {} axes of shape {}", order.size(), x.shape().str()));
  return {order.empty() ? x : permute(x, Axes(order))};
}

Outputs squeezed(FileNode& node) {
  std::vector<int64_t> axes = axes_attribute_or_input(node);
  if (axes.empty() && (node.has("axes") || node.has(1))) return {node[0]};
  return {squeeze(node[0], Axes(axes))};
}

Outputs unsqueezed(FileNode& node) {
  std::vector<int64_t> axes = axes_attribute_or_input(node);
  const int64_t rank = rank_of(node[0]) + static_cast<int64_t>(axes.size());
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) node.fail(fmt::format("the result has no axis {}", axis));
    if (axis < 0) axis += rank;
  }
  std::ranges::sort(axes);
  if (std::ranges::adjacent_find(axes) != axes.end()) node.fail("it inserts an axis twice");
  Variable x = node[0];
  for (const int64_t axis : axes) x = unsqueeze(x, axis);
  return {x};
}

Outputs joined(FileNode& node) {
  const Variable& x = node[0];
  return {concat(node.all(), axis_of(node, x, node.integer("axis", 1)))};
}

Outputs parted(FileNode& node) {
  const Variable& x = node[0];
  const int64_t axis = axis_of(node, x, node.integer("axis", 0)), size = x.shape()[axis];
  std::vector<int64_t> sizes = node.has("split") ? node.integers("split")
                               : node.has(1)     ? node.integers(1)
                                                 : std::vector<int64_t>{};
  if (sizes.empty()) {
    const int64_t parts = node.integer("num_outputs", static_cast<int64_t>(node.outputs()));
    if (parts < 1) node.fail(fmt::format("it makes {} parts", parts));
    if (is_open_axis(x, axis)) node.refuse("it divides an open axis");
    node.check_steps(parts);
    const int64_t each = (size + parts - 1) / parts;
    int64_t left = size;
    for (int64_t i = 0; i < parts; ++i, left -= std::min(each, left)) sizes.push_back(std::min(each, left));
  }
  return split(x, sizes, axis);
}

Outputs tiled(FileNode& node) {
  std::vector<Size> sizes = node.sizes(1);
  if (sizes.size() != node[0].rank()) node.fail("it needs a number for each axis");
  std::vector<int64_t> repeats;
  for (const Size& size : sizes) repeats.push_back(size.is_number() ? size.number : 1);
  check_lengths(node, repeats);
  Variable x = tile(node[0], repeats);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].is_number()) continue;
    // [a, size, b] of [a, 1, b], and both axes are one.
    const Variable one = unsqueeze(x, static_cast<int64_t>(i));
    std::vector<Size> shape;
    Dims merged;
    for (size_t axis = 0; axis < one.rank(); ++axis)
      shape.push_back(axis == i ? sizes[i] : size_of_axis(one, static_cast<int64_t>(axis)));
    for (size_t axis = 0; axis < x.rank(); ++axis) merged.push_back(axis == i ? 2 : 1);
    x = merge_axes(broadcast_like(one, shaped_like(node, shape, x.dtype())), merged);
  }
  return {x};
}

Outputs expanded(FileNode& node) {
  const Variable& x = node[0];
  if (const Variable& like = node.value(1).shape_of;
      like.defined() && like.rank() >= x.rank() &&
      broadcast(x.shape(), like.shape(), "Expand") == like.shape())
    return {broadcast_like(x, like)};
  const std::vector<Size> wanted = node.sizes(1);
  std::vector<int64_t> sizes = node.open_integers(1);
  while (sizes.size() < x.rank()) sizes.insert(sizes.begin(), 1);
  const size_t more = sizes.size() - x.rank();
  Variable y = x;
  for (size_t i = 0; i < more; ++i) y = unsqueeze(y, 0);
  const size_t before = sizes.size() - wanted.size();
  bool grows = false;
  for (size_t i = 0; i < wanted.size(); ++i)
    grows |= !wanted[i].is_number() && y.shape()[static_cast<int64_t>(before + i)] != sizes[before + i];
  if (grows) {  // to the sizes of axes: those of `x` stay where they are not 1
    std::vector<Size> shape(before, Size{});
    shape.insert(shape.end(), wanted.begin(), wanted.end());
    for (size_t i = 0; i < shape.size(); ++i)
      if (const auto axis = static_cast<int64_t>(i); y.shape()[axis] != 1) shape[i] = size_of_axis(y, axis);
    return {broadcast_like(y, shaped_like(node, shape, y.dtype()))};
  }
  // Ones repeated: an axis of x that is open stays so.
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto axis = static_cast<int64_t>(i);
    if (sizes[i] == y.shape()[axis] || sizes[i] == 1) continue;
    if (y.shape()[axis] != 1)
      node.fail(fmt::format("{} cannot be repeated to {}", x.shape().str(), Shape(sizes).str()));
    std::vector<int64_t> repeats(sizes.size(), 1);
    repeats[i] = sizes[i];
    if (sizes[i] == 0) {
      y = slice(y, axis, 0, 0);
      continue;
    }
    Shape shape = y.shape();
    if (!has_open_axes(y)) {
      shape.dims()[i] = sizes[i];
      y = broadcast_to(y, shape);
    } else {
      y = tile(y, repeats);
    }
  }
  return {y};
}

Outputs shape_of(FileNode& node) {
  node.set_known();
  const Shape& shape = node[0].shape();
  const auto rank = static_cast<int64_t>(shape.rank());
  const auto bounded = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
  const int64_t start = bounded(node.integer("start", 0)), end = bounded(node.integer("end", rank));
  std::vector<int64_t> sizes;
  std::vector<Size> axes;
  for (int64_t i = start; i < end; ++i) {
    sizes.push_back(shape[i]);
    axes.push_back(size_of_axis(node[0], i));
  }
  if (!std::ranges::all_of(axes, &Size::is_number)) node.set_sizes(axes);
  const Shape count{static_cast<int64_t>(sizes.size())};
  return {Variable(tensor_from(sizes, count))};
}

Outputs size_of_all(FileNode& node) {
  if (has_open_axes(node[0])) {  // of each run
    node.set_fed();
    return {cast(sum(full_like(cast(node[0], float64), 1)), int64)};
  }
  node.set_known();
  return {Variable(tensor(node[0].shape().elements()))};
}

/// [n, c, h, w] and blocks b: channels are moved to places.
Outputs depth_to_space(FileNode& node) {
  const Variable& x = node[0];
  const int64_t b = node.integer("blocksize");
  const std::string mode = node.text("mode", "DCR");
  if (x.rank() != 4 || b < 1 || b > 1'000'000 || x.shape()[1] % (b * b))
    node.fail(fmt::format("{} has no blocks of {}", x.shape().str(), b));
  if (mode == "CRD") return {pixel_shuffle(x, b)};
  if (mode != "DCR") node.fail(fmt::format("there is no mode '{}'", mode));
  const int64_t c = x.shape()[1] / (b * b);
  const Variable blocks = unflatten(x, 1, {b * b, c});
  return {pixel_shuffle(merge_axes(permute(blocks, {0, 2, 1, 3, 4}), {1, 2, 1, 1}), b)};
}

Outputs space_to_depth(FileNode& node) {
  const Variable& x = node[0];
  const int64_t b = node.integer("blocksize");
  if (x.rank() != 4 || b < 1 || b > 1'000'000)
    node.fail(fmt::format("{} has no blocks of {}", x.shape().str(), b));
  const std::string mode = node.text("mode", "DCR");
  if (mode == "CRD") return {pixel_unshuffle(x, b)};
  if (mode != "DCR") node.fail(fmt::format("there is no mode '{}'", mode));
  const Variable blocks = unflatten(pixel_unshuffle(x, b), 1, {x.shape()[1], b * b});
  return {merge_axes(permute(blocks, {0, 2, 1, 3, 4}), {1, 2, 1, 1})};
}

/// begin, begin + step, … before end, with positions beyond the ends as NumPy has them.
Variable sliced_axis(const FileNode& node, const Variable& x, int64_t axis, int64_t begin, int64_t end,
                     int64_t step) {
  if (step == 0) node.fail("its step is 0");
  constexpr int64_t far = int64_t{1} << 40;  // longer than any axis
  const int64_t size = x.shape()[axis];
  if (is_open_axis(x, axis)) {
    if (step < 0) return slice(x, axis, begin > far ? -1 : begin, end < -far ? open_end : end, step);
    return slice(x, axis, begin < -far ? 0 : begin, end >= size ? open_end : end, step);
  }
  const auto bounded = [&](int64_t i, int64_t low, int64_t high) {
    return std::clamp(i < 0 ? (i < -size ? low : i + size) : i, low, high);
  };
  if (step > 0) {
    const int64_t from = bounded(begin, 0, size), to = bounded(end, 0, size);
    if (from >= to) return slice(x, axis, 0, 0);
    return slice(x, axis, from, to == size ? open_end : to, step);
  }
  const int64_t from = bounded(begin, -1, size - 1), to = end == INT64_MIN ? -1 : bounded(end, -1, size - 1);
  if (from <= to) return slice(x, axis, 0, 0);
  return slice(x, axis, from, to == -1 ? open_end : to, std::max(step, -size));
}

/// The begin or the end of a slice, from the first element on.
Size position(const Size& at, const Variable& x, int64_t axis) {
  constexpr int64_t far = int64_t{1} << 40;  // behind any axis
  const Size size = size_of_axis(x, axis);
  if (at.is_number() && at.number > far) return size;
  return at.number < 0 ? added(size, at, 1, x.shape()[axis] + value_of(at)) : at;
}

Outputs sliced(FileNode& node) {
  const bool inputs = node.opset() >= 10;
  const std::vector<int64_t> begins = inputs ? node.open_integers(1) : node.integers("starts"),
                             ends = inputs ? node.open_integers(2) : node.integers("ends");
  std::vector<int64_t> axes = !inputs       ? node.integers("axes")
                              : node.has(3) ? node.integers(3)
                                            : std::vector<int64_t>{};
  std::vector<int64_t> steps = node.has(4) ? node.integers(4) : std::vector<int64_t>(begins.size(), 1);
  if (axes.empty())
    for (size_t i = 0; i < begins.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (ends.size() != begins.size() || axes.size() != begins.size() || steps.size() != begins.size())
    node.fail("its starts, ends, axes and steps differ in number");
  const auto sizes_in = [&](size_t input) { return inputs ? node.sums(input) : std::vector<Size>{}; };
  const std::vector<Size> from = sizes_in(1), to = sizes_in(2);
  Variable x = node[0];
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axis_of(node, x, axes[i]);
    const bool begin_follows = inputs && from[i].is_open(),
               whole = inputs && to[i].is_axis() && to[i].axes[0] == SizeOf{x, axis};
    if (begin_follows || (inputs && to[i].is_open() && !whole)) {
      const auto places = numbers_from(position(from[i], x, axis), position(to[i], x, axis));
      if (!places || steps[i] != 1) node.refuse_open(begin_follows ? 1 : 2);
      x = gather(x, *places, axis);
      continue;
    }
    x = sliced_axis(node, x, axis, begins[i], ends[i], steps[i]);
  }
  return {x};
}

Outputs padded(FileNode& node) {
  const Variable& x = node[0];
  const std::vector<int64_t> ends = node.opset() >= 11 ? node.integers(1) : node.integers("pads");
  std::vector<int64_t> axes = node.has(3) ? node.integers(3) : std::vector<int64_t>{};
  if (axes.empty())
    for (int64_t axis = 0; axis < rank_of(x); ++axis) axes.push_back(axis);
  if (ends.size() != 2 * axes.size())
    node.fail(fmt::format("it has {} numbers for {} axes", ends.size(), axes.size()));
  check_lengths(node, ends);
  std::vector<Padding> paddings(x.rank());
  for (size_t i = 0; i < axes.size(); ++i)
    paddings[static_cast<size_t>(axis_of(node, x, axes[i]))] = {ends[i], ends[i + axes.size()]};
  PadOptions options;
  const std::string mode = node.text("mode", "constant");
  if (mode == "constant") {
    options.value = node.opset() < 11 ? node.real("value", 0) : node.has(2) ? node.number(2) : 0;
  } else if (mode == "reflect") {
    options.mode = PadMode::reflect;
  } else if (mode == "edge") {
    options.mode = PadMode::replicate;
  } else if (mode == "wrap") {
    options.mode = PadMode::circular;
  } else {
    node.fail(fmt::format("there is no mode '{}'", mode));
  }
  node.ignore("value");
  return {pad(x, paddings, options)};
}

Outputs center_cropped(FileNode& node) {
  const Variable& x = node[0];
  const std::vector<int64_t> sizes = node.integers(1);
  std::vector<int64_t> axes = node.integers("axes");
  if (axes.empty())
    for (int64_t axis = 0; axis < rank_of(x); ++axis) axes.push_back(axis);
  if (axes.size() != sizes.size()) node.fail("it needs a size for each axis");
  check_lengths(node, sizes);
  std::vector<Padding> paddings(x.rank());
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axis_of(node, x, axes[i]), more = sizes[i] - x.shape()[axis];
    const int64_t before = more >= 0 ? more / 2 : -(-more / 2);
    paddings[static_cast<size_t>(axis)] = {before, more - before};
  }
  return {pad(x, paddings)};
}

}  // namespace

void add_layout(Registry& all) {
  all.add("Reshape", 1, reshaped);
  all.add("Flatten", 1, flattened);
  all.add("Transpose", 1, transposed);
  all.add("Squeeze", 1, squeezed);
  all.add("Unsqueeze", 1, unsqueezed);
  all.add("Concat", 4, joined);
  all.add("Split", 2, parted);
  all.add("Tile", 6, tiled);
  all.add("Expand", 8, expanded);
  all.add("Shape", 1, shape_of);
  all.add("Size", 1, size_of_all);
  all.add("DepthToSpace", 1, depth_to_space);
  all.add("SpaceToDepth", 1, space_to_depth);
  all.add("Slice", 1, sliced);
  all.add("Pad", 2, padded);
  all.add("CenterCropPad", 18, center_cropped);
  all.add("Identity", 1, [](FileNode& n) { return Outputs{n[0]}; });
}

}  // namespace espalier::onnx
