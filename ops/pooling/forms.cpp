#include "espalier/ops/pooling/forms.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/functions/layout.h"
#include "espalier/ops/functions/scatter.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/views/window_numbers.h"

namespace espalier {

size_t axes_to_pool(const Variable& x, std::string_view function) {
  if (x.rank() < 3 || x.rank() > most_pooled_axes + 2)
    throw ShapeError(fmt::format("{}: takes [batch, channels, sizes…] with one, two or three sizes, not {}",
                                 function, x.shape().str()));
  return x.rank() - 2;
}

PoolForm form_of(const SlidingWindows& o, size_t axes, std::string_view function) {
  PoolForm form;
  form.kernel = numbers_for_axes(o.kernel, axes, 1, "kernel", function);
  form.stride = numbers_for_axes(o.stride ? *o.stride : o.kernel, axes, 1, "stride", function);
  form.before = form.after = numbers_for_axes(o.padding, axes, 0, "padding", function);
  form.dilation = numbers_for_axes(o.dilation, axes, 1, "dilation", function);
  form.ceil = o.ceil;
  for (size_t i = 0; i < axes; ++i) {
    int64_t span = 0;
    if (__builtin_mul_overflow(form.dilation[i], form.kernel[i] - 1, &span) || span > most_of_a_window)
      throw Error(
          fmt::format("{}: a kernel of {} with dilation {}", function, form.kernel[i], form.dilation[i]));
    if (2 * form.before[i] > span + 1)
      throw Error(fmt::format("{}: a padding of {} is more than half of a window over {} elements", function,
                              form.before[i], span + 1));
  }
  return form;
}
PoolForm sliding_form(const Variable& x, const SlidingWindows& windows, std::string_view function) {
  PoolForm form = form_of(windows, axes_to_pool(x, function), function);
  (void)form.output(x.shape(), function);  // throws if there is none
  return form;
}

void check_pooled_numbers(const Variable& x, std::string_view function) {
  if (x.dtype() == DType::boolean || is_small_integer(x.dtype()))
    throw TypeError(fmt::format("{}: takes numbers, not {} (shape {}); cast() it first", function,
                                name(x.dtype()), x.shape().str()));
}
void check_pooled_reals(const Variable& x, std::string_view function) {
  if (!is_real(x.dtype()))
    throw TypeError(fmt::format("{}: takes real numbers, not {} (shape {}); cast() it first", function,
                                name(x.dtype()), x.shape().str()));
}

Variable elements_at(const Variable& x, const Variable& indices) {
  return reshape_like(take_along_axis(flatten(x, 2), flatten(indices, 2), -1), indices);
}

}  // namespace espalier
