// Windows as columns, and channels as places: composed of views.
#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/functions/windows.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/views/axis_views.h"
#include "espalier/ops/views/window_numbers.h"
#include "espalier/ops/views/windows.h"

namespace espalier {

namespace {

void check_divides(int64_t size, int64_t by, std::string_view what, std::string_view function) {
  if (by < 1) throw Error(fmt::format("{}: {} parts", function, by));
  if (size % by != 0)
    throw ShapeError(fmt::format("{}: {} {} cannot be divided by {}", function, size_text(size), what, by));
}

}  // namespace

Variable unfold(const Operand& x, const WindowOptions& o) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    Variable v = x.defined("unfold");
    if (v.rank() < 3)
      throw ShapeError(fmt::format("unfold: takes [batch, channels, sizes…], not {}", v.shape().str()));
    const size_t axes = v.rank() - 2;
    check_window(o, axes, "unfold");
    std::vector<Padding> paddings;
    for (size_t i = 0; i < axes; ++i) {
      const int64_t size = v.shape().dims()[i + 2];
      if (size == 0 || (size + 2 * o.padding[i] - 1) / o.dilation[i] < o.kernel[i] - 1)
        throw ShapeError(fmt::format(
            "unfold: a window of {} elements with dilation {} does not fit axis {} of {} with {} of padding",
            o.kernel[i], o.dilation[i], i + 2, v.shape().str(), 2 * o.padding[i]));
      paddings.push_back({o.padding[i], o.padding[i]});
    }
    v = pad(v, paddings);
    // [batch, channels, numbers…, kernels…]
    for (size_t i = 0; i < axes; ++i)
      v = sliding_windows(v, static_cast<int64_t>(2 + i), o.kernel[i], o.stride[i], o.dilation[i]);
    Dims order{0, 1};
    for (size_t i = 0; i < 2 * axes; ++i)
      order.push_back(static_cast<int64_t>(2 + (i < axes ? i + axes : i - axes)));
    const auto count = static_cast<int64_t>(axes);
    return merge_axes(transpose(v, Axes(order)), Dims{1, 1 + count, count});
  });
}

Variable fold(const Operand& columns, const Shape& sizes, const WindowOptions& o) {
  const CallScope scope(columns.where());
  return located(columns.where(), [&] {
    Variable v = columns.defined("fold");
    const size_t axes = sizes.rank();
    if (v.rank() != 3 || axes == 0)
      throw ShapeError(fmt::format("fold: takes [batch, channels · kernel elements, windows], not {} for {}",
                                   v.shape().str(), sizes.str()));
    check_window(o, axes, "fold");
    Shape kernels{-1}, numbers;
    int64_t elements = 1, windows = 1;
    for (size_t i = 0; i < axes; ++i) {
      const int64_t room = sizes.dims()[i] + 2 * o.padding[i] - o.dilation[i] * (o.kernel[i] - 1) - 1;
      kernels.dims().push_back(o.kernel[i]);
      numbers.dims().push_back(room < 0 ? 0 : room / o.stride[i] + 1);
      elements *= o.kernel[i];
      windows *= numbers.dims().back();
    }
    if (windows == 0 || v.shape()[1] % elements != 0 || v.shape()[2] != windows)
      throw ShapeError(
          fmt::format("fold: columns of shape {} for windows of {} elements, of which {} have {}",
                      v.shape().str(), elements, sizes.str(), windows));
    v = unflatten(unflatten(v, 2, numbers), 1, kernels);  // [batch, channels, kernels…, numbers…]
    Dims order{0, 1};
    for (size_t i = 0; i < 2 * axes; ++i)
      order.push_back(static_cast<int64_t>(2 + (i < axes ? i + axes : i - axes)));
    v = transpose(v, Axes(order));
    for (size_t i = axes; i-- > 0;)
      v = add_windows(v, sizes.dims()[i] + 2 * o.padding[i], static_cast<int64_t>(2 + i), o.stride[i],
                      o.dilation[i]);
    std::vector<Padding> paddings;
    for (size_t i = 0; i < axes; ++i) paddings.push_back({-o.padding[i], -o.padding[i]});
    return pad(v, paddings);
  });
}

Variable pixel_shuffle(const Operand& x, int64_t factor) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& v = x.defined("pixel_shuffle");
    if (v.rank() < 3) throw ShapeError(fmt::format("pixel_shuffle: {} has no channels", v.shape().str()));
    int64_t pieces = 0;
    if (factor < 1 || __builtin_mul_overflow(factor, factor, &pieces))
      throw Error(fmt::format(
          "pixel_shuffle: the factor is {}; it must be at least 1, and its square an int64", factor));
    check_divides(v.shape()[-3], pieces, "channels", "pixel_shuffle");
    const auto outer = static_cast<int64_t>(v.rank()) - 3;
    Variable y = unflatten(v, outer, {-1, factor, factor});  // [..., c, r, r, h, w]
    y = movedim(y, {outer + 1, outer + 2}, {outer + 2, outer + 4});
    Dims groups(static_cast<size_t>(outer) + 1, 1);
    groups.push_back(2);
    groups.push_back(2);
    return merge_axes(y, groups);
  });
}

Variable pixel_unshuffle(const Operand& x, int64_t factor) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& v = x.defined("pixel_unshuffle");
    if (v.rank() < 3) throw ShapeError(fmt::format("pixel_unshuffle: {} has no channels", v.shape().str()));
    if (factor < 1)
      throw Error(fmt::format("pixel_unshuffle: the factor is {}; it must be at least 1", factor));
    check_divides(v.shape()[-2], factor, "rows", "pixel_unshuffle");
    check_divides(v.shape()[-1], factor, "columns", "pixel_unshuffle");
    const auto outer = static_cast<int64_t>(v.rank()) - 3;
    Variable y = unflatten(unflatten(v, outer + 2, {-1, factor}), outer + 1, {-1, factor});
    y = movedim(y, {outer + 2, outer + 4}, {outer + 1, outer + 2});  // [..., c, r, r, h, w]
    Dims groups(static_cast<size_t>(outer), 1);
    for (const int64_t group : {3, 1, 1}) groups.push_back(group);
    return merge_axes(y, groups);
  });
}

Variable channel_shuffle(const Operand& x, int64_t groups) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& v = x.defined("channel_shuffle");
    if (v.rank() < 2) throw ShapeError(fmt::format("channel_shuffle: {} has no channels", v.shape().str()));
    check_divides(v.shape()[1], groups, "channels", "channel_shuffle");
    Dims merged(v.rank(), 1);
    merged[1] = 2;
    return merge_axes(swapaxes(unflatten(v, 1, {groups, -1}), 1, 2), merged);
  });
}

}  // namespace espalier
