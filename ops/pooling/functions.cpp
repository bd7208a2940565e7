// The functions of ops/functions/pooling.h: checked options, and values from the ops of pooling.
#include "espalier/ops/functions/pooling.h"

#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pooling/forms.h"
#include "espalier/ops/pooling/pool.h"
#include "espalier/ops/views/window_numbers.h"
#include "espalier/ops/widened.h"

namespace espalier {

namespace {

SlidingWindows windows_of(const MaxPoolOptions& o) {
  return {o.kernel, o.stride, o.padding, o.dilation, o.ceil};
}
PoolForm form_of_parts(const Variable& x, const PerAxis& parts, std::string_view function) {
  PoolForm form;
  form.parts = parts_of_axes(parts, axes_to_pool(x, function), function);
  (void)form.output(x.shape(), function);  // throws if there is none
  return form;
}

Variable largest_of(const Variable& x, const PoolForm& form, std::string_view function,
                    const std::source_location& where) {
  check_pooled_numbers(x, function);
  return pool_max(x, form, where);
}
Variable mean_of(const Variable& x, const PoolForm& form, bool with_padding, std::string_view function,
                 const std::source_location& where) {
  check_pooled_reals(x, function);
  const Variable wide = widened(x);
  return rounded(pool_sum(wide, form, where) / pool_count(wide, form, with_padding, where), x.dtype());
}

PooledWithIndices largest_with_indices(const Variable& x, const PoolForm& form, std::string_view function,
                                       const std::source_location& where) {
  check_pooled_numbers(x, function);
  const Variable indices = pool_argmax(x, form, where);
  return {pool_take(x, indices, form, where), indices};
}

template <class F>
auto pooled(const Operand& x, std::string_view function, F&& f) {
  const CallScope scope(x.where(), function);
  return located(x.where(), [&] { return f(x.defined(function)); });
}

}  // namespace

PooledWithIndices max_pool_with_indices(const Operand& x, const MaxPoolOptions& options) {
  return pooled(x, "max_pool_with_indices", [&](const Variable& v) {
    return largest_with_indices(v, sliding_form(v, windows_of(options), "max_pool_with_indices"),
                                "max_pool_with_indices", x.where());
  });
}
Variable max_pool(const Operand& x, const MaxPoolOptions& options) {
  return pooled(x, "max_pool", [&](const Variable& v) {
    return largest_of(v, sliding_form(v, windows_of(options), "max_pool"), "max_pool", x.where());
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
    return largest_of(v, form_of_parts(v, parts, "adaptive_max_pool"), "adaptive_max_pool", x.where());
  });
}
PooledWithIndices adaptive_max_pool_with_indices(const Operand& x, const PerAxis& parts) {
  return pooled(x, "adaptive_max_pool_with_indices", [&](const Variable& v) {
    return largest_with_indices(v, form_of_parts(v, parts, "adaptive_max_pool_with_indices"),
                                "adaptive_max_pool_with_indices", x.where());
  });
}
Variable adaptive_avg_pool(const Operand& x, const PerAxis& parts) {
  return pooled(x, "adaptive_avg_pool", [&](const Variable& v) {
    return mean_of(v, form_of_parts(v, parts, "adaptive_avg_pool"), false, "adaptive_avg_pool", x.where());
  });
}

}  // namespace espalier
