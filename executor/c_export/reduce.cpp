// Reductions along axes, of operands of any strides.
#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/op_names.h"
#include "espalier/executor/c_export/emitters.h"

namespace espalier::c_export {

namespace {

constexpr const char* sum_text =
    R"(/* The sum of n numbers side by side. */
static float sum_of(long n, const float *restrict x) {
  const long whole = n / 8 * 8;
  float s[8] = {0}, total;
  for (long i = 0; i < whole; i += 8)
    for (int l = 0; l < 8; ++l) s[l] += x[i + l];
  total = ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
  for (long i = whole; i < n; ++i) total += x[i];
  return total;
}
)";

Folding folding_of(Function& f) {
  InputSpecs specs;
  for (size_t k = 0; k < f.inputs(); ++k) specs.push_back(&f.input_spec(k));
  const auto folding = f.op().folding(specs);
  if (!folding) f.refuse("it is no reduction along axes");
  return *folding;
}

}  // namespace

void write_reduction(Function& f) {
  const DType type = f.output_spec().dtype;
  f.only({type, f.input_spec(0).dtype});
  const Folding folding = folding_of(f);
  const Shape& shape = f.input_shape(0);
  Dims kept = shape.dims();
  for (const int64_t axis : folding.axes) kept[static_cast<size_t>(axis)] = 1;
  const Layout to = broadcast_layout(Layout(Shape(kept)), shape);
  const Axes axes = join_axes(shape, {f.layout(0).strides, to.strides});
  const bool adds = folding.fold == Fold::sum || folding.fold == Fold::mean;
  const std::string x = f.in(0), y = f.out();
  const int64_t results = f.output_shape().elements(), each = results ? shape.elements() / results : 0;
  const size_t last = axes.sizes.size() - 1;
  const auto folded = [&](const std::string& total, const std::string& value) {
    if (adds) return fmt::format("{} += {};", total, value);
    const char* than = folding.fold == Fold::max ? ">" : "<";
    const std::string or_nan = is_real(type) ? fmt::format(" || {0} != {0}", value) : "";
    return fmt::format("{0} = {1} {2} {0}{3} ? {1} : {0};", total, value, than, or_nan);
  };
  f.loop("k", results);
  const bool of_nothing = each == 0 && folding.fold == Fold::mean;
  f.line(adds            ? fmt::format("{}[k] = {};", y, of_nothing ? literal(NAN, type) : "0")
         : is_real(type) ? fmt::format("{}[k] = {}INFINITY;", y, folding.fold == Fold::max ? "-" : "")
                         : fmt::format("{}[k] = INT{}_{};", y, type == DType::int32 ? 32 : 64,
                                       folding.fold == Fold::max ? "MIN" : "MAX"));
  f.close();
  if (each == 0) return f.line(fmt::format("(void){};", x));
  f.loops(axes, "i", last);
  const std::string from = position(Dims(axes.strides[0].begin(), axes.strides[0].end() - 1), "i"),
                    into = position(Dims(axes.strides[1].begin(), axes.strides[1].end() - 1), "i");
  if (adds && type == DType::float32 && axes.strides[0][last] == 1 && axes.strides[1][last] == 0) {
    f.need("sum_of", sum_text);
    f.line(fmt::format("{}[{}] += sum_of({}, {} + {});", y, into, axes.sizes[last], x, from));
  } else {
    f.loop(fmt::format("i{}", last), axes.sizes[last]);
    f.line(folded(fmt::format("{}[{}]", y, position(axes.strides[1], "i")),
                  fmt::format("{}[{}]", x, position(axes.strides[0], "i"))));
    f.close();
  }
  f.close(last);
  if (folding.fold != Fold::mean) return;
  f.loop("k", results);
  f.line(fmt::format("{}[k] /= {};", y, each));
  f.close();
}

void write_arg_extreme(Function& f) {
  const Shape& shape = f.input_shape(0);
  const size_t axis = resolve_axis(attribute<int64_t>(f.op(), "axis"), shape.rank(), f.op().name());
  const int64_t n = shape.dims()[axis], step = f.layout(0).strides[axis];
  Dims sizes = shape.dims(), strides = f.layout(0).strides;
  sizes.erase(axis);
  strides.erase(axis);
  const Axes axes = join_axes(Shape(sizes), {strides, Layout(Shape(sizes)).strides});
  const std::string x = f.in(0), y = f.out();
  f.loops(axes, "i", axes.sizes.size());
  f.line(fmt::format("const {} *row = {} + {};", c_type(f.input_spec(0).dtype), x,
                     position(axes.strides[0], "i")));
  f.line("long best = 0;");
  f.line(fmt::format("for (long k = 1; k < {0}; ++k)", n));
  f.line(fmt::format(
      "  if (row[k * {0}] {1} row[best * {0}] || (row[k * {0}] != row[k * {0}] && row[best * {0}] "
      "== row[best * {0}])) best = k;",
      step, is_op(f.op(), "argmax") ? ">" : "<"));
  f.line(fmt::format("{}[{}] = best;", y, position(axes.strides[1], "i")));
  f.close(axes.sizes.size());
}

}  // namespace espalier::c_export
