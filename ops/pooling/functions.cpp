// The functions of ops/functions/pooling.h: checked options, and values from the ops of pooling.
#include "espalier/ops/functions/pooling.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pooling/pool.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/widened.h"
#include "espalier/ops/window_numbers.h"

namespace espalier {

namespace {

size_t axes_to_pool(const Variable& x, std::string_view function) {
  if (x.rank() < 3 || x.rank() > most_pooled_axes + 2)
    throw ShapeError(fmt::format("{}: takes [batch, channels, sizes…] with one, two or three sizes, not {}",
                                 function, x.shape().str()));
  return x.rank() - 2;
}
PoolForm sliding_form(const Variable& x, const MaxPoolOptions& o, std::string_view function) {
  const size_t axes = axes_to_pool(x, function);
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
  (void)form.windows(x.shape(), function);  // throws if none fits
  return form;
}
PoolForm form_of_parts(const Variable& x, const PerAxis& parts, std::string_view function) {
  PoolForm form;
  form.parts = numbers_for_axes(parts, axes_to_pool(x, function), 1, "number of parts", function);
  (void)form.windows(x.shape(), function);  // throws if there are none
  return form;
}

/// The elements of planes at the places that pool_argmax found.
Variable elements_at(const Variable& x, const Variable& indices) {
  return reshape_like(take_along_axis(flatten(x, 2), flatten(indices, 2), -1), indices);
}
PooledWithIndices largest_of(const Variable& x, const PoolForm& form, std::string_view function,
                             const std::source_location& where) {
  if (x.dtype() == DType::boolean || is_small_integer(x.dtype()))
    throw TypeError(fmt::format("{}: takes numbers, not {} (shape {}); cast() it first", function,
                                name(x.dtype()), x.shape().str()));
  const Variable indices = pool_argmax(x, form, where);
  return {elements_at(x, indices), indices};
}
Variable mean_of(const Variable& x, const PoolForm& form, bool with_padding, std::string_view function,
                 const std::source_location& where) {
  if (!is_real(x.dtype()))
    throw TypeError(fmt::format("{}: takes real numbers, not {} (shape {}); cast() it first", function,
                                name(x.dtype()), x.shape().str()));
  const Variable wide = widened(x);
  return rounded(pool_sum(wide, form, where) / pool_count(wide, form, with_padding, where), x.dtype());
}

template <class F>
auto pooled(const Operand& x, std::string_view function, F&& f) {
  const CallScope scope(x.where());
  return located(x.where(), [&] { return f(x.defined(function)); });
}

}  // namespace

PooledWithIndices max_pool_with_indices(const Operand& x, const MaxPoolOptions& options) {
  return pooled(x, "max_pool_with_indices", [&](const Variable& v) {
    return largest_of(v, sliding_form(v, options, "max_pool_with_indices"), "max_pool_with_indices",
                      x.where());
  });
}
Variable max_pool(const Operand& x, const MaxPoolOptions& options) {
  return pooled(x, "max_pool", [&](const Variable& v) {
    return largest_of(v, sliding_form(v, options, "max_pool"), "max_pool", x.where()).values;
  });
}
Variable avg_pool(const Operand& x, const AveragePoolOptions& o) {
  return pooled(x, "avg_pool", [&](const Variable& v) {
    const PoolForm form = sliding_form(v, {o.kernel, o.stride, o.padding, 1, o.ceil}, "avg_pool");
    return mean_of(v, form, o.count_padding, "avg_pool", x.where());
  });
}
Variable adaptive_max_pool(const Operand& x, const PerAxis& parts) {
  return pooled(x, "adaptive_max_pool", [&](const Variable& v) {
    return largest_of(v, form_of_parts(v, parts, "adaptive_max_pool"), "adaptive_max_pool", x.where()).values;
  });
}
Variable adaptive_avg_pool(const Operand& x, const PerAxis& parts) {
  return pooled(x, "adaptive_avg_pool", [&](const Variable& v) {
    return mean_of(v, form_of_parts(v, parts, "adaptive_avg_pool"), false, "adaptive_avg_pool", x.where());
  });
}

}  // namespace espalier
