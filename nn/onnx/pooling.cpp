// Pooling.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "espalier/nn/onnx/windows.h"

namespace espalier::onnx {

namespace {

/// Whether the library's pooling pads as the file asks.
bool fits(const Windows& windows) {
  for (size_t i = 0; i < windows.axes(); ++i)
    if (windows.padding[i].before > windows.kernel[i] / 2 || windows.padding[i].before < 0) return false;
  return windows.symmetric();
}

/// `x` with the padding of the windows, which have none from then on.
Variable padded(const Variable& x, Windows& windows, double value) {
  const Variable y = pad(x, windows.padding, {.value = value});
  std::ranges::fill(windows.padding, Padding{});
  return y;
}

/// How many windows there are along an axis if the last is rounded up: as many as begin in the axis or before
/// it.
int64_t windows_rounded_up(const Windows& windows, const Variable& x, size_t i) {
  const int64_t span = windows.dilation[i] * (windows.kernel[i] - 1) + 1, stride = windows.stride[i];
  const int64_t in_front = x.shape()[static_cast<int64_t>(i) + 2] + windows.padding[i].before;
  const int64_t size = in_front + windows.padding[i].after;
  const int64_t count = (std::max<int64_t>(0, size - span) + stride - 1) / stride + 1;
  return (count - 1) * stride >= in_front ? count - 1 : count;
}

/// Ends the padding of each axis with the last window.
void end_with_last_window(Windows& windows, const Variable& x) {
  for (size_t i = 0; i < windows.axes(); ++i) {
    const int64_t span = windows.dilation[i] * (windows.kernel[i] - 1) + 1;
    windows.padding[i].after = (windows_rounded_up(windows, x, i) - 1) * windows.stride[i] + span -
                               x.shape()[static_cast<int64_t>(i) + 2] - windows.padding[i].before;
  }
}

/// So many zeros behind each axis that the last window is whole which begins within the axis.
void round_up(Windows& windows, const Variable& x) {
  const std::vector<Padding> given(windows.padding.begin(), windows.padding.end());
  end_with_last_window(windows, x);
  for (size_t i = 0; i < windows.axes(); ++i)
    windows.padding[i].after = std::max(windows.padding[i].after, given[i].after);
}

Outputs largest_of_windows(FileNode& node) {
  Windows windows = windows_of(node, node[0]);
  const bool by_columns = node.integer("storage_order", 0) != 0;
  bool ceil = node.integer("ceil_mode", 0) != 0;
  const bool indices = node.wants(1);
  Variable x = computable(node[0]);
  if (!fits(windows)) {
    if (indices) node.refuse("indices with uneven padding are not supported");
    if (ceil) {
      for (int64_t axis = 2; axis < rank_of(x); ++axis)
        if (is_open_axis(x, axis)) node.refuse("this padding needs the size of an open axis");
      end_with_last_window(windows, x);
      ceil = false;
    }
    x = padded(
        x, windows,
        is_real(x.dtype()) ? -std::numeric_limits<double>::infinity() : std::numeric_limits<int32_t>::min());
  }
  const MaxPoolOptions options{.kernel = windows.kernel,
                               .stride = PerAxis(windows.stride),
                               .padding = windows.before(),
                               .dilation = windows.dilation,
                               .ceil = ceil};
  if (!indices) return {cast(max_pool(x, options), node[0].dtype())};
  const auto [values, places] = max_pool_with_indices(x, options);
  // Places are counted in the whole tensor.
  const int64_t plane = Shape(Dims(x.shape().begin() + 2, x.shape().end())).elements();
  if (has_open_axes(x, 2) || is_open_axis(x, 0)) node.refuse("indices need the sizes of open axes");
  Variable in_plane = places;
  if (by_columns) {
    if (x.rank() != 4) node.refuse("storage_order is supported for two axes");
    const int64_t width = x.shape()[3], height = x.shape()[2];
    in_plane = remainder(places, width) * height + floor_divide(places, width);
  }
  node.check_constant({x.shape()[0], x.shape()[1]}, int64);
  std::vector<int64_t> leading(x.rank(), 1);
  leading[0] = x.shape()[0];
  leading[1] = x.shape()[1];
  const Variable first = reshape(Variable(arange(leading[0] * leading[1], int64)), Shape(leading)) * plane;
  return {cast(values, node[0].dtype()), in_plane + first};
}

/// The mean of windows whose elements are `dilation` apart.
Variable mean_of_windows(const Variable& x, const Windows& windows) {
  Variable y = x;
  for (size_t i = 0; i < windows.axes(); ++i)
    y = mean(sliding_windows(y, static_cast<int64_t>(i) + 2, windows.kernel[i], windows.stride[i],
                             windows.dilation[i]),
             -1);
  return y;
}

Outputs averaged(FileNode& node) {
  const Variable& x = node[0];
  Windows windows = windows_of(node, x);
  const bool ceil = node.integer("ceil_mode", 0) != 0,
             count_padding = node.integer("count_include_pad", 0) != 0;
  if (fits(windows) && !windows.dilated())
    return {avg_pool(x, {.kernel = windows.kernel,
                         .stride = PerAxis(windows.stride),
                         .padding = windows.before(),
                         .ceil = ceil,
                         .count_padding = count_padding})};
  for (int64_t axis = 2; axis < rank_of(x); ++axis)
    if (is_open_axis(x, axis)) node.refuse("this padding needs the size of an open axis");
  // The mean over the elements that count: that of the windows divided by that of ones.
  Shape plane = x.shape();
  plane.dims()[0] = plane.dims()[1] = 1;
  Windows counted = windows;
  node.check_constant(plane, x.dtype());
  Variable ones_there = Variable(ones(plane, x.dtype()));
  if (count_padding) ones_there = padded(ones_there, counted, 1);
  if (ceil) {
    if (count_padding) {
      Windows rest = windows;
      round_up(rest, x);
      for (size_t i = 0; i < counted.axes(); ++i)
        counted.padding[i].after = rest.padding[i].after - windows.padding[i].after;
    } else {
      round_up(counted, x);
    }
    round_up(windows, x);
  }
  const Variable total = mean_of_windows(padded(x, windows, 0), windows);
  return {total / mean_of_windows(padded(ones_there, counted, 0), counted)};
}

Outputs normed(FileNode& node) {
  Windows windows = windows_of(node, node[0]);
  const bool ceil = node.integer("ceil_mode", 0) != 0;
  Variable x = node[0];
  if (ceil) round_up(windows, x);
  if (!fits(windows)) x = padded(x, windows, 0);
  return {lp_pool(x, {.kernel = windows.kernel,
                      .p = static_cast<double>(node.integer("p", 2)),
                      .stride = PerAxis(windows.stride),
                      .padding = windows.before(),
                      .dilation = windows.dilation})};
}

Outputs unpooled(FileNode& node) {
  const Variable& x = node[0];
  const Windows windows = windows_of(node, x);
  const auto axes = static_cast<int64_t>(windows.axes());
  std::vector<int64_t> own,
      size;  // of the unpooled planes, whose places the indices count, and of the result
  for (int64_t i = 0; i < axes; ++i) {
    const auto k = static_cast<size_t>(i);
    if (is_open_axis(x, i + 2)) node.refuse("it needs the size of an open axis");
    own.push_back((x.shape()[i + 2] - 1) * windows.stride[k] - windows.padding[k].before -
                  windows.padding[k].after + windows.kernel[k]);
  }
  size = own;
  if (node.has(2)) {
    const std::vector<int64_t> shape = node.integers(2);
    if (shape.size() != x.rank()) node.fail("its output_shape is that of other axes");
    check_lengths(node, shape);
    size.assign(shape.begin() + 2, shape.end());
  }
  const int64_t plane = Shape(own).elements();
  std::vector<Padding> ends;
  for (size_t k = 0; k < own.size(); ++k) ends.push_back({0, size[k] - own[k]});
  if (plane < 1) node.fail("its result has no elements");
  // The elements of a plane are written by their places in it, which the result has as its last axes.
  const Variable places = remainder(flatten(node[1], 2), plane);
  const Shape empty{x.shape()[0], x.shape()[1], plane};
  if (is_open_axis(x, 0)) node.refuse("it needs the size of an open axis");
  node.check_constant(empty, x.dtype());
  const Variable planes = put_along_axis(Variable(zeros(empty, x.dtype())), places, flatten(x, 2), 2);
  return {pad(unflatten(planes, 2, Shape(own)), ends)};
}

}  // namespace

void add_pooling(Registry& all) {
  all.add("MaxPool", 1, largest_of_windows);
  all.add("AveragePool", 1, averaged);
  all.add("LpPool", 2, normed);
  all.add("MaxUnpool", 9, unpooled);
  all.add("GlobalMaxPool", 1, [](FileNode& n) { return Outputs{global_max_pool(n[0])}; });
  all.add("GlobalAveragePool", 1, [](FileNode& n) { return Outputs{global_avg_pool(n[0])}; });
  all.add("GlobalLpPool", 2,
          [](FileNode& n) { return Outputs{global_lp_pool(n[0], static_cast<double>(n.integer("p", 2)))}; });
}

}  // namespace espalier::onnx
