// Copies of elements between layouts, and constants.
#include "espalier/core/op_registry.h"
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

/// The part of the output that an axis's elements from `begin` on are.
Layout part_of_output(const Function& f, size_t axis, int64_t begin, int64_t count) {
  Shape part = f.output_shape();
  part.dims()[axis] = count;
  return part_of(f.output_shape(), part, axis, begin);
}

size_t axis_of(const Function& f) {
  return resolve_axis(attribute<int64_t>(f.op(), "axis"), f.output_shape().rank(), f.op().name());
}

/// Copies `count` elements of the input's axis, from `from` on and `step` apart, to those of the output from
/// `to` on.
void copy_along(Function& f, size_t axis, int64_t from, int64_t step, int64_t to, int64_t count) {
  const Layout target = part_of_output(f, axis, to, count);
  if (target.shape.elements() == 0) return;
  Layout source = f.layout(0);
  source.offset += from * source.strides[axis];
  source.strides[axis] *= step;
  source.shape = target.shape;
  copy(f, 0, source, target);
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

void write_concat_part(Function& f) {
  const auto part = static_cast<size_t>(attribute<int64_t>(f.op(), "part"));
  const size_t axis = axis_of(f);
  int64_t begin = 0;
  for (size_t k = 0; k < part; ++k) begin += f.input_shape(k + 1).dims()[axis];
  copy_along(f, axis, begin, 1, 0, f.output_shape().dims()[axis]);
}

void write_stack(Function& f) {
  const size_t axis = axis_of(f);
  for (size_t k = 0; k < f.inputs(); ++k) {
    if (f.input_shape(k).elements() == 0) continue;
    Layout source = f.layout(k);
    source.shape.dims().insert(axis, 1);
    source.strides.insert(axis, 0);
    copy(f, k, source, part_of_output(f, axis, static_cast<int64_t>(k), 1));
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

void write_pad_steps_like(Function& f) {
  fill(f, 0);
  const OpPtr steps = make_op("slice_steps", f.op().attributes());
  copy(f, 0, f.layout(0), *steps->view(Layout(f.output_shape()), f.output_spec()));
}

void write_pad_constant(Function& f) {
  const size_t axis = axis_of(f);
  const auto before = attribute<int64_t>(f.op(), "before"), after = attribute<int64_t>(f.op(), "after");
  const int64_t size = f.input_shape(0).dims()[axis];
  const auto put = [&](int64_t begin, int64_t count) {
    const Layout target = part_of_output(f, axis, begin, count);
    if (target.shape.elements() > 0) copy(f, 1, broadcast_layout(f.layout(1), target.shape), target);
  };
  put(0, before);
  copy_along(f, axis, 0, 1, before, size);
  put(before + size, after);
}

void write_pad_from_axis(Function& f) {
  const size_t axis = axis_of(f);
  const auto before = attribute<int64_t>(f.op(), "before"), after = attribute<int64_t>(f.op(), "after");
  const int64_t size = f.input_shape(0).dims()[axis];
  const auto mode = attribute<std::string>(f.op(), "mode");
  copy_along(f, axis, 0, 1, before, size);
  if (mode == "circular") {
    copy_along(f, axis, size - before, 1, 0, before);
    copy_along(f, axis, 0, 1, before + size, after);
  } else if (mode == "reflect") {
    copy_along(f, axis, before, -1, 0, before);
    copy_along(f, axis, size - 2, -1, before + size, after);
  } else {
    copy_along(f, axis, 0, 0, 0, before);
    copy_along(f, axis, size - 1, 0, before + size, after);
  }
}

void write_flip(Function& f) {
  Layout source = f.layout(0);
  for (const int64_t given : attribute<std::vector<int64_t>>(f.op(), "axes")) {
    const size_t axis = resolve_axis(given, source.shape.rank(), f.op().name());
    source.offset += (source.shape.dims()[axis] - 1) * source.strides[axis];
    source.strides[axis] *= -1;
  }
  copy(f, 0, source, Layout(f.output_shape()));
}

void write_roll(Function& f) {
  const size_t axis = axis_of(f);
  const int64_t size = f.output_shape().dims()[axis],
                first = (attribute<int64_t>(f.op(), "shift") % size + size) % size;
  copy_along(f, axis, size - first, 1, 0, first);
  copy_along(f, axis, 0, 1, first, size - first);
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

void write_zeros(Function& f) { fill(f, 0); }

void write_full_like(Function& f) { fill(f, attribute<double>(f.op(), "value")); }

void write_count_ratio(Function& f) {
  fill(f,
       static_cast<double>(f.input_shape(0).elements()) / static_cast<double>(f.input_shape(1).elements()));
}

}  // namespace espalier::c_export
