#include "espalier/ops/views/axis_views.h"

#include <memory>

#include "espalier/core/countable.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/open_sizes.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/view_op.h"
#include "espalier/ops/views/axis_groups.h"

namespace espalier {

namespace {

struct RepeatOnAxis : ViewOp {
  RepeatOnAxis(int64_t count, int64_t axis) : count_(count), axis_(axis) {}
  std::string_view name() const override { return "repeat_on_axis"; }
  Attributes attributes() const override { return {{"count", count_}, {"axis", axis_}}; }
  Specs infer(const InputSpecs& in) const override {
    Shape shape = in[0]->shape;
    const size_t axis = resolve_axis(axis_, shape.rank() + 1, name());
    shape.dims().insert(axis, count_);
    check_countable(shape, name());
    return {{in[0]->dtype, std::move(shape)}};
  }
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    Layout layout = in;
    const size_t axis = resolve_axis(axis_, out.shape.rank(), name());
    layout.shape = out.shape;
    layout.strides.insert(axis, 0);
    return layout;
  }
  Gradients gradient(const GradientRule& rule) const override {
    const auto axis = static_cast<int64_t>(resolve_axis(axis_, rule.input(0).rank() + 1, name()));
    return {sum(rule.output_gradient(), axis)};
  }

 private:
  int64_t count_, axis_;
};

struct MergeAxes : ReshapeView {
  explicit MergeAxes(Dims groups) : groups_(std::move(groups)) {}
  std::string_view name() const override { return "merge_axes"; }
  Attributes attributes() const override {
    return {{"groups", std::vector<int64_t>(groups_.begin(), groups_.end())}};
  }
  Specs infer(const InputSpecs& in) const override {
    const Dims& from = in[0]->shape.dims();
    Dims dims;
    size_t at = 0;
    for (const int64_t group : groups_) {
      const size_t end = std::min(from.size(), at + static_cast<size_t>(std::max<int64_t>(group, 0)));
      dims.push_back(Shape(Dims(from.begin() + at, from.begin() + end)).elements());
      at = end;
    }
    return {{in[0]->dtype, resolve(Shape(std::move(dims)), in[0]->shape.elements(), name())}};
  }

 private:
  Dims groups_;
};

struct Unflatten : ReshapeView {
  Unflatten(int64_t axis, Shape sizes) : axis_(axis), sizes_(std::move(sizes)) {}
  std::string_view name() const override { return "unflatten"; }
  Attributes attributes() const override {
    return {{"axis", axis_}, {"sizes", std::vector<int64_t>(sizes_.begin(), sizes_.end())}};
  }
  Specs infer(const InputSpecs& in) const override {
    const Dims& from = in[0]->shape.dims();
    const size_t axis = resolve_axis(axis_, from.size(), name());
    const Shape parts = resolve(sizes_, from[axis], name());
    Dims dims(from.begin(), from.begin() + axis);
    dims.append(parts.begin(), parts.end());
    dims.append(from.begin() + axis + 1, from.end());
    return {{in[0]->dtype, Shape(std::move(dims))}};
  }

 private:
  int64_t axis_;
  Shape sizes_;
};

/// Its first input, repeated to the shape that all inputs have together.
struct BroadcastTogether : ViewOp {
  std::string_view name() const override { return "broadcast_together"; }
  Specs infer(const InputSpecs& in) const override {
    Shape shape = in[0]->shape;
    for (size_t i = 1; i < in.size(); ++i) shape = broadcast(shape, in[i]->shape, "broadcast_tensors");
    return {{in[0]->dtype, std::move(shape)}};
  }
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    return broadcast_layout(in, out.shape);
  }
  Gradients gradient(const GradientRule& rule) const override {
    Gradients gradients(rule.inputs());
    gradients[0] = sum_to_like(rule.output_gradient(), rule.input(0));
    return gradients;
  }
};

}  // namespace

Variable with_fixed_sizes(const Variable& x, size_t first) {
  Variable result = x;
  for (size_t axis = first; axis < x.rank(); ++axis) {
    const int64_t size = x.shape().dims()[axis];
    // The slice is an identity that has the size for an attribute.
    if (is_open_axis(x, static_cast<int64_t>(axis)))
      result = slice(result, static_cast<int64_t>(axis), 0, size);
  }
  return result;
}

Variable repeat_on_axis(const Variable& x, int64_t count, int64_t axis) {
  return apply(std::make_shared<RepeatOnAxis>(count, axis), {&x}, std::source_location::current());
}
Variable merge_axes(const Variable& x, const Dims& groups) {
  return apply(std::make_shared<MergeAxes>(groups), {&x}, std::source_location::current());
}
Variable unflatten(const Operand& x, int64_t axis, const Shape& sizes) {
  return apply(std::make_shared<Unflatten>(axis, sizes), {&x.variable()}, x.where());
}
Variable unflatten_like(const Operand& x, int64_t axis, const Operand& like, const Axes& axes) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    constexpr std::string_view function = "unflatten_like";
    const Variable &from = x.defined(function), &sized = like.defined(function);
    const size_t divided = resolve_axis(axis, from.rank(), function);
    std::vector<std::vector<AxisOf>> groups;
    Dims parts;
    for (size_t i = 0; i < from.rank(); ++i) {
      if (i != divided) {
        groups.push_back({{0, static_cast<int64_t>(i)}});
        continue;
      }
      for (const int64_t part : axes.list()) {
        const size_t a = resolve_axis(part, sized.rank(), function);
        groups.push_back({{1, static_cast<int64_t>(a)}});
        parts.push_back(sized.shape().dims()[a]);
      }
    }
    if (axes.list().empty()) throw ShapeError(fmt::format("{}: no axes are named", function));
    const Shape together(std::move(parts));
    if (together.elements() != from.shape().dims()[divided])
      throw ShapeError(
          fmt::format("{}: axis {} of {} cannot be divided into {}, the sizes of these axes of {}", function,
                      axis, from.shape().str(), together.str(), sized.shape().str()));
    return reshape_by(from, {sized}, groups);
  });
}
Variable flatten(const Operand& x, int64_t first, int64_t last) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& from = x.defined("flatten");
    const size_t begin = resolve_axis(first, from.rank(), "flatten"),
                 end = resolve_axis(last, from.rank(), "flatten");
    if (end < begin)
      throw ShapeError(
          fmt::format("flatten: axis {} of {} comes before axis {}", last, from.shape().str(), first));
    if (begin == end) return from;
    Dims groups(from.rank() - (end - begin), 1);
    groups[begin] = static_cast<int64_t>(end - begin) + 1;
    return merge_axes(from, groups);
  });
}

std::vector<Variable> broadcast_tensors(const std::vector<Variable>& variables, std::source_location where) {
  std::vector<Variable> result;
  for (size_t i = 0; i < variables.size(); ++i) {
    SmallVector<const Variable*, 8> inputs{&variables[i]};
    for (const Variable& v : variables) inputs.push_back(&v);
    result.push_back(apply(shared_op<BroadcastTogether>(), {inputs.data(), inputs.size()}, where));
  }
  return result;
}

void add_axis_view_ops(OpRegistry& ops) {
  ops.add<BroadcastTogether>(Arity::at_least(2));
  ops.add("repeat_on_axis", 1, [](AttributeReader& a) {
    return std::make_shared<RepeatOnAxis>(a.integer("count", 0), a.integer("axis"));
  });
  ops.add("merge_axes", 1,
          [](AttributeReader& a) { return std::make_shared<MergeAxes>(a.integers("groups")); });
  ops.add("unflatten", 1, [](AttributeReader& a) {
    const int64_t axis = a.integer("axis");
    return std::make_shared<Unflatten>(axis, a.shape("sizes"));
  });
}

}  // namespace espalier
