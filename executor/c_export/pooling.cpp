// Pooling over windows of the last axes.
#include "espalier/executor/c_export/emitters.h"
#include "espalier/executor/c_export/indices.h"
#include "espalier/ops/pooling/pool_windows.h"

namespace espalier::c_export {

namespace {

PoolForm pool_form(Function& f) {
  PoolForm form;
  const auto numbers = [&](std::string_view name) {
    const auto list = attribute<std::vector<int64_t>>(f.op(), name);
    return Dims(list.begin(), list.end());
  };
  form.kernel = numbers("kernel");
  form.stride = numbers("stride");
  form.before = numbers("before");
  form.after = numbers("after");
  form.dilation = numbers("dilation");
  form.ceil = attribute<bool>(f.op(), "ceil");
  form.parts = numbers("parts");
  form.channels_last = attribute<bool>(f.op(), "channels_last");
  if (form.channels_last) f.refuse("there is no C code for channels as the last axis");
  return form;
}

constexpr std::string_view letters[] = {"a", "b", "c"};

/// Loops over the planes p and the windows wa, wb, wc of each; `window` is their number in all planes.
void each_window(Function& f, const PoolAxes& axes, int64_t planes) {
  if (planes > 0) f.loop("p", planes);
  for (size_t i = 0; i < most_pooled_axes; ++i) f.loop(fmt::format("w{}", letters[i]), axes.at[i].count);
  f.line(fmt::format("const long window = {}(wa * {} + wb) * {} + wc;",
                     planes > 0 ? fmt::format("p * {} + ", axes.windows()) : "", axes.at[1].count,
                     axes.at[2].count));
}
/// Loops over the elements of a window that lie in the plane; `at` is their place in it.
void each_element(Function& f, const PoolAxes& axes) {
  for (size_t i = 0; i < most_pooled_axes; ++i) {
    const PoolAxis& axis = axes.at[i];
    const std::string_view l = letters[i];
    if (axis.kernel == 0) {
      f.open(fmt::format("for (long {0} = w{0} * {1} / {2}; {0} < ((w{0} + 1) * {1} + {3}) / {2}; ++{0})", l,
                         axis.size, axis.count, axis.count - 1));
      continue;
    }
    f.open(fmt::format("for (long k{0} = 0; k{0} < {1}; ++k{0})", l, axis.kernel));
    f.line(fmt::format("const long {0} = w{0} * {1} - {2} + k{0} * {3};", l, axis.stride, axis.before,
                       axis.dilation));
    f.line(fmt::format("if ({0} < 0 || {0} >= {1}) continue;", l, axis.size));
  }
  f.line(fmt::format("const long at = (a * {} + b) * {} + c;", axes.at[1].size, axes.at[2].size));
}

/// Defines the elements of a window along axis i, with those of the padding; what `ceil` lets reach beyond it
/// does not count.
void count_with_padding(Function& f, const PoolForm& form, const PoolAxis& axis, size_t i) {
  const std::string_view l = letters[i];
  const size_t from_last = most_pooled_axes - 1 - i;
  if (from_last >= form.axes()) return f.line(fmt::format("const long n{} = 1;", l));
  const int64_t after = form.after[form.axes() - 1 - from_last];
  f.line(fmt::format("const long most{0} = ({1} - w{0} * {2} - 1) / {3} + 1;", l,
                     axis.size + after + axis.before, axis.stride, axis.dilation));
  f.line(fmt::format("const long n{0} = most{0} < 0 ? 0 : most{0} > {1} ? {1} : most{0};", l, axis.kernel));
}

}  // namespace

namespace {

/// The largest elements of windows, or their places.
void write_largest(Function& f, bool places) {
  const PoolForm form = pool_form(f);
  const PoolAxes axes = form.windows(f.input_shape(0), f.op().name());
  const std::string x = f.dense(0), y = f.out();
  each_window(f, axes, pooled_planes(f.input_shape(0), form));
  f.line(fmt::format("const {} *plane = {} + p * {};", c_type(f.input_spec(0).dtype), x, axes.elements()));
  f.line("long best = -1;");
  each_element(f, axes);
  f.line(
      "if (best < 0 || plane[at] > plane[best] || (plane[at] != plane[at] && plane[best] == plane[best])) "
      "best = at;");
  f.close(3);
  f.line(y + (places ? "[window] = best;" : "[window] = plane[best];"));
  f.close(4);
}

}  // namespace

void write_pool_argmax(Function& f) { write_largest(f, true); }
void write_pool_max(Function& f) { write_largest(f, false); }

void write_pool_sum(Function& f) {
  f.only({DType::float32});
  const PoolForm form = pool_form(f);
  const PoolAxes axes = form.windows(f.input_shape(0), f.op().name());
  const std::string x = f.dense(0), y = f.out();
  each_window(f, axes, pooled_planes(f.input_shape(0), form));
  f.line("float sum = 0;");
  each_element(f, axes);
  f.line(fmt::format("sum += {}[p * {} + at];", x, axes.elements()));
  f.close(3);
  f.line(fmt::format("{}[window] = sum;", y));
  f.close(4);
}

void write_pool_spread(Function& f) {
  f.only({DType::float32});
  const PoolForm form = pool_form(f);
  const PoolAxes axes = form.windows(f.output_shape(), f.op().name());
  const std::string g = f.dense(0), y = f.out();
  f.fill_with_zeros(y, f.output_shape().elements());
  each_window(f, axes, pooled_planes(f.output_shape(), form));
  each_element(f, axes);
  f.line(fmt::format("{}[p * {} + at] += {}[window];", y, axes.elements(), g));
  f.close(7);
}

void write_pool_take(Function& f) {
  const PoolForm form = pool_form(f);
  const PoolAxes axes = form.windows(f.input_shape(0), f.op().name());
  const std::string x = f.dense(0), places = f.dense(1), y = f.out();
  each_window(f, axes, pooled_planes(f.input_shape(0), form));
  write_index(f, "at", fmt::format("{}[window]", places), axes.elements(), true);
  f.line(fmt::format("{}[window] = {}[p * {} + at];", y, x, axes.elements()));
  f.close(4);
}

void write_pool_add_like(Function& f) {
  const PoolForm form = pool_form(f);
  const PoolAxes axes = form.windows(f.output_shape(), f.op().name());
  const std::string g = f.dense(0), places = f.dense(1), y = f.out();
  f.fill_with_zeros(y, f.output_shape().elements());
  each_window(f, axes, pooled_planes(f.output_shape(), form));
  write_index(f, "at", fmt::format("{}[window]", places), axes.elements(), true);
  f.line(fmt::format("{}[p * {} + at] += {}[window];", y, axes.elements(), g));
  f.close(4);
}

void write_pool_count(Function& f) {
  f.only({DType::float32});
  const PoolForm form = pool_form(f);
  const PoolAxes axes = form.windows(f.input_shape(0), f.op().name());
  const std::string y = f.out();
  each_window(f, axes, 0);
  if (attribute<bool>(f.op(), "with_padding") && axes.at[most_pooled_axes - 1].kernel > 0) {
    for (size_t i = 0; i < most_pooled_axes; ++i) count_with_padding(f, form, axes.at[i], i);
    f.line(fmt::format("{}[window] = (float)(na * nb * nc);", y));
    return f.close(3);
  }
  f.line("long count = 0;");
  each_element(f, axes);
  f.line("count += at >= 0;");
  f.close(3);
  f.line(fmt::format("{}[window] = (float)count;", y));
  f.close(3);
}

}  // namespace espalier::c_export
