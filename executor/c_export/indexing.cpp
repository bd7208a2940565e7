// Gathering and scattering by index.
#include "espalier/core/op_names.h"
#include "espalier/executor/c_export/emitters.h"
#include "espalier/executor/c_export/indices.h"
#include "espalier/ops/indexing/chosen.h"

namespace espalier::c_export {

namespace {

/// The axis along which gather and its transpose choose; look_up has the first.
size_t axis_of(const Function& f, const Shape& shape) {
  if (is_op(f.op(), "look_up")) return 0;
  return resolve_axis(attribute<int64_t>(f.op(), "axis"), shape.rank(), f.op().name());
}

}  // namespace

void write_gather(Function& f) {
  const AxisBlocks b(f.input_shape(0), axis_of(f, f.input_shape(0)));
  const bool from_end = !is_op(f.op(), "look_up") || attribute<bool>(f.op(), "from_end");
  const int64_t count = f.input_shape(1).elements();
  const std::string x = f.dense(0), indices = f.dense(1), y = f.out();
  f.loop("k", count);
  write_index(f, "at", fmt::format("{}[k]", indices), b.size, from_end);
  f.loop("o", b.outer);
  f.loop("i", b.inner);
  f.line(fmt::format("{}[(o * {} + k) * {} + i] = {}[(o * {} + at) * {} + i];", y, count, b.inner, x, b.size,
                     b.inner));
  f.close(3);
}

void write_scatter_add(Function& f) {
  const AxisBlocks b(f.output_shape(), axis_of(f, f.output_shape()));
  const int64_t count = f.input_shape(1).elements();
  const std::string x = f.dense(0), indices = f.dense(1), y = f.out();
  f.fill_with_zeros(y, f.output_shape().elements());
  f.loop("k", count);
  write_index(f, "at", fmt::format("{}[k]", indices), b.size, attribute<bool>(f.op(), "from_end"));
  f.loop("o", b.outer);
  f.loop("i", b.inner);
  f.line(fmt::format("{}[(o * {} + at) * {} + i] += {}[(o * {} + k) * {} + i];", y, b.size, b.inner, x, count,
                     b.inner));
  f.close(3);
}

void write_pick(Function& f) {
  const int64_t n = f.input_shape(0)[-1];
  const std::string x = f.dense(0), indices = f.dense(1), y = f.out();
  f.loop("r", f.output_shape().elements());
  write_index(f, "at", fmt::format("{}[r]", indices), n, false);
  f.line(fmt::format("{}[r] = {}[r * {} + at];", y, x, n));
  f.close();
}

void write_put(Function& f) {
  const int64_t n = f.output_shape()[-1];
  const std::string x = f.dense(0), indices = f.dense(1), y = f.out();
  f.fill_with_zeros(y, f.output_shape().elements());
  f.loop("r", f.input_shape(1).elements());
  write_index(f, "at", fmt::format("{}[r]", indices), n, false);
  f.line(fmt::format("{}[r * {} + at] = {}[r];", y, n, x));
  f.close();
}

void write_one_hot(Function& f) {
  const auto n = attribute<int64_t>(f.op(), "classes");
  const std::string indices = f.dense(0), y = f.out();
  f.fill_with_zeros(y, f.output_shape().elements());
  f.loop("r", f.input_shape(0).elements());
  write_index(f, "at", fmt::format("{}[r]", indices), n, false);
  f.line(fmt::format("{}[r * {} + at] = 1;", y, n));
  f.close();
}

namespace {

/// Loops over the elements of what is chosen along an axis, [o, c, i], and defines the index `at` of each.
void each_along(Function& f, const AxisBlocks& b, const Shape& chosen, size_t axis) {
  const Layout seen = broadcast_layout(Layout(f.input_shape(1)), chosen);
  const std::string indices = f.dense(1);
  const Axes axes = join_axes(chosen, {seen.strides});
  const int64_t count = chosen.dims()[axis];
  f.loop("o", b.outer);
  f.loop("c", count);
  f.loop("i", b.inner);
  std::string index = fmt::format("(o * {} + c) * {} + i", count, b.inner);
  if (!seen.contiguous()) {
    f.line(fmt::format("const long e = {};", index));
    index.clear();
    int64_t divisor = 1;
    for (size_t k = axes.sizes.size(); k-- > 0; divisor *= axes.sizes[k])
      if (axes.strides[0][k] != 0)
        index += fmt::format("{}e / {} % {} * {}", index.empty() ? "" : " + ", divisor, axes.sizes[k],
                             axes.strides[0][k]);
    if (index.empty()) index = "0 * e";
  }
  write_index(f, "at", fmt::format("{}[{}]", indices, index), b.size, true);
}

}  // namespace

void write_take_along_axis(Function& f) {
  const size_t axis = axis_of(f, f.input_shape(0));
  const AxisBlocks b(f.input_shape(0), axis);
  const int64_t count = f.output_shape().dims()[axis];
  const std::string x = f.dense(0), y = f.out();
  each_along(f, b, f.output_shape(), axis);
  f.line(fmt::format("{}[(o * {} + c) * {} + i] = {}[(o * {} + at) * {} + i];", y, count, b.inner, x, b.size,
                     b.inner));
  f.close(3);
}

void write_add_along_axis(Function& f) {
  const size_t axis = axis_of(f, f.output_shape());
  const AxisBlocks b(f.output_shape(), axis);
  const int64_t count = f.input_shape(0).dims()[axis];
  const std::string x = f.dense(0), y = f.out();
  f.fill_with_zeros(y, f.output_shape().elements());
  each_along(f, b, f.input_shape(0), axis);
  f.line(fmt::format("{}[(o * {} + at) * {} + i] += {}[(o * {} + c) * {} + i];", y, b.size, b.inner, x, count,
                     b.inner));
  f.close(3);
}

void write_sum_rows(Function& f) {
  const int64_t size = f.input_shape(2).dims()[0], count = f.output_shape(1).elements();
  const int64_t inner = count ? f.output_shape(0).elements() / count : 0;
  const std::string x = f.dense(0), indices = f.dense(1), values = f.out(0), rows = f.out(1);
  f.line("long used = 0;");
  f.loop("k", count);
  f.line(fmt::format("const int64_t given = {}[k], row = given < 0 ? given + {} : given;", indices, size));
  f.line("long at = 0;");
  f.line(fmt::format("if (row < 0 || row >= {}) continue;", size));
  f.line(fmt::format("while (at < used && {}[at] != row) ++at;", rows));
  f.open("if (at == used)");
  f.line(fmt::format("{}[used++] = row;", rows));
  f.line(
      fmt::format("for (long i = 0; i < {1}; ++i) {0}[at * {1} + i] = {2}[k * {1} + i];", values, inner, x));
  f.line("continue;");
  f.close();
  f.line(
      fmt::format("for (long i = 0; i < {1}; ++i) {0}[at * {1} + i] += {2}[k * {1} + i];", values, inner, x));
  f.close();
  f.open(fmt::format("for (; used < {}; ++used)", count));
  f.line(fmt::format("{}[used] = {};", rows, size));
  f.line(fmt::format("for (long i = 0; i < {1}; ++i) {0}[used * {1} + i] = 0;", values, inner));
  f.close();
}

void write_take_rows(Function& f) {
  const int64_t size = f.input_shape(0).dims()[0], count = f.input_shape(1).elements();
  const int64_t inner = count ? f.output_shape().elements() / count : 0;
  const std::string table = f.dense(0), rows = f.dense(1), y = f.out();
  f.loop("k", count);
  f.line(fmt::format("const int64_t row = {}[k];", rows));
  f.line(fmt::format("const int inside = row >= 0 && row < {};", size));
  f.loop("i", inner);
  f.line(fmt::format("{}[k * {} + i] = inside ? {}[(long)row * {} + i] : 0;", y, inner, table, inner));
  f.close(2);
}

void write_put_rows(Function& f) {
  const int64_t size = f.output_shape().dims()[0], count = f.input_shape(1).elements();
  const int64_t inner = count ? f.input_shape(2).elements() / count : 0;
  const std::string rows = f.dense(1), values = f.dense(2), y = f.out(), table = f.dense(0);
  if (table != y) f.line(fmt::format("for (long i = 0; i < {}; ++i) {}[i] = {}[i];", size * inner, y, table));
  f.loop("k", count);
  f.line(fmt::format("const int64_t row = {}[k];", rows));
  f.line(fmt::format("if (row < 0 || row >= {}) continue;", size));
  f.line(fmt::format("for (long i = 0; i < {1}; ++i) {0}[(long)row * {1} + i] = {2}[k * {1} + i];", y, inner,
                     values));
  f.close();
}

void write_checked_indices(Function& f) {
  const Shape& like = f.input_shape(1);
  const int64_t size =
      like.dims()[resolve_axis(attribute<int64_t>(f.op(), "axis"), like.rank(), f.op().name())];
  const std::string x = f.dense(0), y = f.out();
  f.loop("k", f.output_shape().elements());
  f.fail_if(
      fmt::format("{0}[k] < {1} || {0}[k] >= {2}", x, attribute<bool>(f.op(), "from_end") ? -size : 0, size));
  if (x != y) f.line(fmt::format("{}[k] = {}[k];", y, x));
  f.close();
}

}  // namespace espalier::c_export
