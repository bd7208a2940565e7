#include "espalier/ops/functions/unpooling.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/indexing/checked_indices.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pooling/forms.h"
#include "espalier/ops/views/axis_views.h"
#include "espalier/ops/views/window_numbers.h"

namespace espalier {

namespace {

constexpr std::string_view function = "max_unpool";

/// The sizes of the planes of the result.
Shape unpooled_sizes(const Variable& x, const MaxUnpoolOptions& o) {
  const size_t axes = axes_to_pool(x, function);
  const Dims kernel = numbers_for_axes(o.kernel, axes, 1, "kernel", function),
             stride = numbers_for_axes(o.stride ? *o.stride : o.kernel, axes, 1, "stride", function),
             padding = numbers_for_axes(o.padding, axes, 0, "padding", function);
  Shape sizes;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t n = x.shape().dims()[i + 2];
    int64_t size = 0;
    if (n < 1 || __builtin_mul_overflow(n - 1, stride[i], &size) ||
        __builtin_add_overflow(size, kernel[i] - 2 * padding[i], &size) || size < 1)
      throw ShapeError(
          fmt::format("{}: an axis of {} of {} with kernel {}, stride {} and padding {} has no "
                      "size before the pooling",
                      function, n, x.shape().str(), kernel[i], stride[i], padding[i]));
    sizes.dims().push_back(size);
  }
  if (!o.size) return sizes;
  const Dims given = numbers_for_axes(*o.size, axes, 1, "size", function);
  for (size_t i = 0; i < axes; ++i) {
    if (given[i] <= sizes.dims()[i] - stride[i] || given[i] >= sizes.dims()[i] + stride[i])
      throw ShapeError(
          fmt::format("{}: a size of {} for axis {} of {}, which with a stride of {} is {} or "
                      "differs by less than the stride",
                      function, given[i], i + 2, x.shape().str(), stride[i], sizes.dims()[i]));
    sizes.dims()[i] = given[i];
  }
  return sizes;
}

}  // namespace

Variable max_unpool(const Operand& x, const Operand& indices, const MaxUnpoolOptions& options) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable &given = x.defined(function), &places = indices.defined(function);
    check_pooled_numbers(given, function);
    if (places.dtype() != int32 && places.dtype() != int64)
      throw TypeError(fmt::format("{}: indices are {}, not int32 or int64", function, name(places.dtype())));
    const Shape sizes = unpooled_sizes(given, options);
    if (!(places.shape() == given.shape()))
      throw ShapeError(fmt::format("{}: indices of shape {} for elements of shape {}", function,
                                   places.shape().str(), given.shape().str()));
    const int64_t elements = sizes.elements();
    const Variable rows = flatten(with_fixed_sizes(given, 2), 2);
    // [batch, channels] of zeros, repeated over a plane: the batch may have any size.
    const Variable planes = repeat_on_axis(zeros_like(squeeze(slice(rows, -1, 0, 1), -1)), elements, 2);
    const Variable at = checked_indices(flatten(places, 2), planes, 2, true, function);
    return unflatten(put_along_axis(planes, at, rows, -1), 2, sizes);
  });
}

}  // namespace espalier
