// Copies of elements between layouts, and constants.
#include "espalier/executor/c_export/emitters.h"

namespace espalier::c_export {

namespace {

/// Copies an input, as that layout sees it, to that layout of the output.
void copy(Function& f, size_t k, const Layout& from, const Layout& to) {
  const Axes axes = join_axes(to.shape, {from.strides, to.strides});
  const auto at = [](int64_t offset, const Dims& strides) {
    const std::string place = position(strides, "i");
    return offset == 0    ? place
           : place == "0" ? fmt::format("{}", offset)
                          : fmt::format("{} + {}", offset, place);
  };
  f.loops(axes, "i", axes.sizes.size());
  f.line(fmt::format("{}[{}] = {}[{}];", f.out(), at(to.offset, axes.strides[1]), f.in(k),
                     at(from.offset, axes.strides[0])));
  f.close(axes.sizes.size());
}

/// The layout of a part of the output along an axis.
Layout part_of(const Shape& whole, const Shape& part, size_t axis, int64_t begin) {
  Layout layout(whole);
  layout.shape = part;
  layout.offset = begin * layout.strides[axis];
  return layout;
}

void fill(Function& f, double value) {
  f.loop("i", f.output_shape().elements());
  f.line(fmt::format("{}[i] = {};", f.out(), literal(value, f.output_spec().dtype)));
  f.close();
}

}  // namespace

void write_copy(Function& f) { copy(f, 0, f.layout(0), Layout(f.input_shape(0))); }

void write_concat(Function& f) {
  const size_t axis =
      resolve_axis(attribute<int64_t>(f.op(), "axis"), f.output_shape().rank(), f.op().name());
  int64_t begin = 0;
  for (size_t k = 0; k < f.inputs(); ++k) {
    const Shape& part = f.input_shape(k);
    if (part.elements() > 0) copy(f, k, f.layout(k), part_of(f.output_shape(), part, axis, begin));
    begin += part.dims()[axis];
  }
}

void write_pad_like(Function& f) {
  fill(f, 0);
  const size_t axis =
      resolve_axis(attribute<int64_t>(f.op(), "axis"), f.output_shape().rank(), f.op().name());
  int64_t begin = attribute<int64_t>(f.op(), "begin");
  if (begin < 0) begin += f.output_shape().dims()[axis];
  copy(f, 0, f.layout(0), part_of(f.output_shape(), f.input_shape(0), axis, begin));
}

void write_join(Function& f) {
  const auto numbers = [&](std::string_view name) { return attribute<std::vector<int64_t>>(f.op(), name); };
  const auto ranks = numbers("ranks"), offsets = numbers("offsets"), sizes = numbers("sizes"),
             strides = numbers("strides");
  size_t at = 0;
  for (size_t k = 0; k < f.inputs(); ++k) {
    Layout part;
    part.offset = offsets[k];
    Dims dims;
    for (int64_t i = 0; i < ranks[k]; ++i, ++at) {
      dims.push_back(sizes[at]);
      part.strides.push_back(strides[at]);
    }
    part.shape = Shape(std::move(dims));
    copy(f, k, f.layout(k), part);
  }
}

void write_full_like(Function& f) { fill(f, attribute<double>(f.op(), "value")); }

void write_count_ratio(Function& f) {
  fill(f,
       static_cast<double>(f.input_shape(0).elements()) / static_cast<double>(f.input_shape(1).elements()));
}

}  // namespace espalier::c_export
