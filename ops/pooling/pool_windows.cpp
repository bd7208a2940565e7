#include "espalier/ops/pooling/pool_windows.h"

#include <fmt/format.h>

#include <limits>

#include "espalier/core/countable.h"
#include "espalier/core/error.h"
#include "espalier/ops/views/window_numbers.h"

namespace espalier {

namespace {

std::vector<int64_t> as_list(const Dims& dims) { return {dims.begin(), dims.end()}; }

}  // namespace

Attributes PoolForm::attributes() const {
  return {{"kernel", as_list(kernel)}, {"stride", as_list(stride)},     {"before", as_list(before)},
          {"after", as_list(after)},   {"dilation", as_list(dilation)}, {"ceil", ceil},
          {"parts", as_list(parts)},   {"channels_last", channels_last}};
}

PoolForm PoolForm::read(AttributeReader& reader) {
  PoolForm form;
  form.kernel = reader.integers("kernel");
  form.stride = reader.integers("stride");
  form.before = reader.integers("before");
  form.after = reader.integers("after");
  form.dilation = reader.integers("dilation");
  form.ceil = reader.flag("ceil");
  form.parts = reader.integers("parts");
  form.channels_last = reader.flag("channels_last");
  const auto check = [&](const Dims& list, std::string_view name, int64_t least) {
    if (list.size() != form.kernel.size()) reader.refuse(name);
    for (const int64_t number : list)
      if (number < least || number > most_of_a_window) reader.refuse(name);
  };
  check(form.kernel, "kernel", 1);
  check(form.stride, "stride", 1);
  check(form.before, "before", 0);
  check(form.after, "after", 0);
  check(form.dilation, "dilation", 1);
  for (const int64_t number : form.parts)
    if (number < 1 || number > most_of_a_window) reader.refuse("parts");
  if (form.axes() < 1 || form.axes() > most_pooled_axes || (!form.kernel.empty() && !form.parts.empty()))
    reader.refuse("kernel");
  return form;
}

PoolForm PoolForm::of(const Op& op) {
  const Attributes attributes = op.attributes();
  AttributeReader reader(op.name(), attributes);
  return read(reader);
}

PoolAxes PoolForm::windows(const Shape& x, std::string_view op) const {
  if (x.rank() < axes() + (channels_last ? 1 : 0))
    throw ShapeError(fmt::format("{}: {} has no {} axes", op, x.str(), axes()));
  PoolAxes all;
  for (size_t i = 0; i < axes(); ++i) {
    PoolAxis& axis = all.at[most_pooled_axes - axes() + i];
    const size_t number = first_axis(x) + i;
    axis.size = x.dims()[number];
    if (axis.size < 1) throw ShapeError(fmt::format("{}: axis {} of {} is empty", op, number, x.str()));
    const int64_t most_of_all = std::numeric_limits<int64_t>::max() / (parts.empty() ? 2 : parts[i] + 1);
    if (axis.size > most_of_all)
      throw ShapeError(fmt::format("{}: axis {} of {} is too long", op, number, x.str()));
    if (!parts.empty()) {
      axis.kernel = 0;
      axis.count = parts[i];
      continue;
    }
    axis.kernel = kernel[i];
    axis.stride = stride[i];
    axis.before = before[i];
    axis.dilation = dilation[i];
    const int64_t span = dilation[i] * (kernel[i] - 1) + 1, room = axis.size + before[i] + after[i] - span;
    const int64_t room_of_last = ceil ? room + stride[i] - 1 : room;
    if (room_of_last < 0)
      throw ShapeError(
          fmt::format("{}: a window over {} elements does not fit axis {} of {}, which has {} with "
                      "{} of padding",
                      op, span, number, x.str(), size_text(axis.size), before[i] + after[i]));
    axis.count = room_of_last / stride[i] + 1;
    if (axis.begin(axis.count - 1) >= axis.size) --axis.count;
  }
  return all;
}

Shape PoolForm::output(const Shape& x, std::string_view op) const {
  const PoolAxes all = windows(x, op);
  Shape out = x;
  for (size_t i = 0; i < axes(); ++i)
    out.dims()[first_axis(x) + i] = all.at[most_pooled_axes - axes() + i].count;
  check_countable(out, op);
  return out;
}

}  // namespace espalier
