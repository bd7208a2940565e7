// Views: other layouts of the same elements.
#include <algorithm>

#include "espalier/core/channels_last.h"
#include "espalier/core/countable.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/kept_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/view_op.h"

namespace espalier {

namespace {

struct Reshape : ReshapeView {
  explicit Reshape(Shape shape) : shape_(std::move(shape)) {}
  std::string_view name() const override { return "reshape"; }
  Attributes attributes() const override {
    return {{"shape", std::vector<int64_t>(shape_.begin(), shape_.end())}};
  }
  Specs infer(const InputSpecs& in) const override {
    return {{in[0]->dtype, resolve(shape_, in[0]->shape.elements(), name())}};
  }

 private:
  Shape shape_;
};

struct ReshapeLike : ReshapeView {
  std::string_view name() const override { return "reshape_like"; }
  Specs infer(const InputSpecs& in) const override {
    return {{in[0]->dtype, resolve(in[1]->shape, in[0]->shape.elements(), name())}};
  }
};

/// The reverse of merging all axes but the last: the leading axes are those of the second input.
struct UnfoldLike : ReshapeView {
  std::string_view name() const override { return "unfold_like"; }
  Specs infer(const InputSpecs& in) const override {
    if (in[0]->shape.rank() == 0 || in[1]->shape.rank() == 0)
      throw ShapeError(fmt::format("unfold_like: {} cannot have the leading axes of {}", in[0]->shape.str(),
                                   in[1]->shape.str()));
    Shape shape = in[1]->shape;
    shape.dims().back() = in[0]->shape.dims().back();
    return {{in[0]->dtype, resolve(shape, in[0]->shape.elements(), name())}};
  }
};

struct Flatten : ReshapeView {
  explicit Flatten(int64_t first) : first_(first) {}
  std::string_view name() const override { return "flatten"; }
  Attributes attributes() const override { return {{"first", first_}}; }
  Specs infer(const InputSpecs& in) const override {
    const Shape& shape = in[0]->shape;
    if (shape.rank() == 0) {
      (void)resolve_axis(first_, 1, name());
      return {{in[0]->dtype, Shape{1}}};
    }
    const size_t first = resolve_axis(first_, shape.rank(), name());
    Dims dims(shape.begin(), shape.begin() + first);
    dims.push_back(Shape(Dims(shape.begin() + first, shape.end())).elements());
    return {{in[0]->dtype, Shape(std::move(dims))}};
  }

 private:
  int64_t first_;
};

/// Merges all axes but the last.
struct FoldRows : ReshapeView {
  std::string_view name() const override { return "fold_rows"; }
  Specs infer(const InputSpecs& in) const override {
    const Shape& shape = in[0]->shape;
    const int64_t width = shape[-1];
    return {{in[0]->dtype, {Shape(Dims(shape.begin(), shape.end() - 1)).elements(), width}}};
  }
};

/// Inserts axes of size 1, at positions of the result.
struct Unsqueeze : ReshapeView {
  explicit Unsqueeze(Dims axes) : axes_(std::move(axes)) {}
  std::string_view name() const override { return "unsqueeze"; }
  Attributes attributes() const override {
    return {{"axes", std::vector<int64_t>(axes_.begin(), axes_.end())}};
  }
  Specs infer(const InputSpecs& in) const override {
    const size_t rank = in[0]->shape.rank() + axes_.size();
    const auto added = Axes(axes_).mask(rank, name());
    Dims dims;
    size_t from = 0;
    for (size_t i = 0; i < rank; ++i)
      dims.push_back(axes_.size() && added[i] ? 1 : in[0]->shape.dims()[from++]);
    return {{in[0]->dtype, Shape(std::move(dims))}};
  }

 private:
  Dims axes_;
};

struct Squeeze : ReshapeView {
  explicit Squeeze(Dims axes) : axes_(std::move(axes)) {}
  std::string_view name() const override { return "squeeze"; }
  Attributes attributes() const override {
    return {{"axes", std::vector<int64_t>(axes_.begin(), axes_.end())}};
  }
  Specs infer(const InputSpecs& in) const override {
    const Shape& shape = in[0]->shape;
    const auto named = Axes(axes_).mask(shape.rank(), name());
    Dims dims;
    for (size_t i = 0; i < shape.rank(); ++i) {
      if (named[i] && shape.dims()[i] == 1) continue;
      if (named[i] && !axes_.empty())
        throw ShapeError(fmt::format("squeeze: axis {} of shape {} is not of size 1", i, shape.str()));
      dims.push_back(shape.dims()[i]);
    }
    return {{in[0]->dtype, Shape(std::move(dims))}};
  }

 private:
  Dims axes_;
};

struct BroadcastOp : ViewOp, Batchable {
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    return broadcast_layout(in, out.shape);
  }
  Gradients batched(const Stacked& in) const override {
    const Shape to = in.infer()[0].shape;
    if (in.is_shared(0)) return {broadcast_to(in[0], in.with_rows(to))};
    const Shape from = in.shape(0);
    Dims dims(to.rank() - from.rank(), 1);
    dims.append(from.begin(), from.end());
    return {broadcast_to(in[0].reshape(in.with_rows(Shape(std::move(dims)))), in.with_rows(to))};
  }
};

void check_broadcast(const Shape& from, const Shape& to, std::string_view op) {
  const bool sizes = std::all_of(to.begin(), to.end(), [](int64_t size) { return size >= 0; });
  if (!sizes || from.rank() > to.rank() || !(broadcast(from, to, op) == to))
    throw ShapeError(fmt::format("{}: {} cannot be repeated to {}{}", op, from.str(), to.str(),
                                 sizes ? "" : ": -1 is no size here; expand_as() takes those of a Variable"));
  check_countable(to, op);
}

struct BroadcastTo : BroadcastOp {
  explicit BroadcastTo(Shape shape) : shape_(std::move(shape)) {}
  std::string_view name() const override { return "broadcast_to"; }
  Attributes attributes() const override {
    return {{"shape", std::vector<int64_t>(shape_.begin(), shape_.end())}};
  }
  Specs infer(const InputSpecs& in) const override {
    check_broadcast(in[0]->shape, shape_, name());
    return {{in[0]->dtype, shape_}};
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {sum_to_like(rule.output_gradient(), rule.input(0))};
  }

 private:
  Shape shape_;
};

struct BroadcastLike : BroadcastOp {
  std::string_view name() const override { return "broadcast_like"; }
  Specs infer(const InputSpecs& in) const override {
    check_broadcast(in[0]->shape, in[1]->shape, name());
    return {{in[0]->dtype, in[1]->shape}};
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {sum_to_like(rule.output_gradient(), rule.input(0)), Variable()};
  }
};

struct Transpose : ViewOp, Batchable {
  explicit Transpose(Dims order) : ViewOp(swaps_last_two(order)), order_(std::move(order)) {}
  std::string_view name() const override { return "transpose"; }
  Attributes attributes() const override {
    return {{"order", std::vector<int64_t>(order_.begin(), order_.end())}};
  }
  Specs infer(const InputSpecs& in) const override {
    const Shape& shape = in[0]->shape;
    (void)Axes(order_).mask(shape.rank(), name());
    if (order_.size() != shape.rank())
      throw ShapeError(fmt::format("transpose: {} axes named for the shape {}", order_.size(), shape.str()));
    Dims dims;
    for (int64_t axis : order_) dims.push_back(shape[axis]);
    return {{in[0]->dtype, Shape(std::move(dims))}};
  }
  std::optional<size_t> identity(const KnownInputs&, const Spec&) const override {
    for (size_t i = 0; i < order_.size(); ++i)
      if (resolve_axis(order_[i], order_.size(), name()) != i) return std::nullopt;
    return 0;
  }
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    Layout layout = in;
    layout.shape = out.shape;
    for (size_t i = 0; i < order_.size(); ++i)
      layout.strides[i] = in.strides[resolve_axis(order_[i], order_.size(), name())];
    return layout;
  }
  Gradients gradient(const GradientRule& rule) const override {
    Dims inverse(order_.size(), 0);
    for (size_t i = 0; i < order_.size(); ++i)
      inverse[resolve_axis(order_[i], order_.size(), name())] = static_cast<int64_t>(i);
    return {transpose(rule.output_gradient(), Axes(std::move(inverse)))};
  }
  Gradients batched(const Stacked& in) const override {
    Dims order{0};
    for (const int64_t axis : order_) order.push_back(in.axis(axis));
    return {transpose(in.stacked(0), Axes(std::move(order)))};
  }

 private:
  static bool swaps_last_two(const Dims& order) {
    const size_t rank = order.size();
    for (size_t i = 0; i < rank; ++i) {
      const int64_t axis = order[i] < 0 ? order[i] + static_cast<int64_t>(rank) : order[i];
      if (axis != static_cast<int64_t>(i + 2 < rank ? i : 2 * rank - 3 - i)) return false;
    }
    return rank >= 2;
  }

  Dims order_;
};

struct Slice : ViewOp, Batchable {
  Slice(int64_t axis, int64_t begin, int64_t end) : axis_(axis), begin_(begin), end_(end) {}
  std::string_view name() const override { return "slice"; }
  Attributes attributes() const override { return {{"axis", axis_}, {"begin", begin_}, {"end", end_}}; }
  Specs infer(const InputSpecs& in) const override {
    Shape shape = in[0]->shape;
    int64_t& size = shape.dims()[resolve_axis(axis_, shape.rank(), name())];
    const int64_t begin = from_start(begin_, size), end = from_start(end_, size);
    if (0 <= end && end < begin && begin <= size)
      throw IndexError(
          fmt::format("slice: no steps of 1 lead from {} to {} on axis {} of shape {}; steps of "
                      "the other sign do",
                      begin_, end_, axis_, in[0]->shape.str()));
    if (begin < 0 || end < begin || end > size)
      throw IndexError(fmt::format("slice: {} to {} is outside axis {} of shape {}", begin_,
                                   end_ == open_end ? "the end" : std::to_string(end_), axis_,
                                   in[0]->shape.str()));
    size = end - begin;
    return {{in[0]->dtype, std::move(shape)}};
  }
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    Layout layout = in;
    const size_t axis = resolve_axis(axis_, in.shape.rank(), name());
    layout.offset += from_start(begin_, in.shape.dims()[axis]) * in.strides[axis];
    layout.shape = out.shape;
    return layout;
  }
  ChannelsLastOp with_channels_last(const InputSpecs& in, const Spec& out) const override {
    return along_axis_with_channels_last(*this, in, out);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {pad_like(rule.output_gradient(), rule.input(0), axis_, begin_)};
  }
  InputSet row_inputs(const InputSpecs& in) const override {
    return resolve_axis(axis_, in[0]->shape.rank(), name()) > 0 ? InputSet::all() : InputSet::none();
  }
  Gradients batched(const Stacked& in) const override {
    return {slice(in.stacked(0), in.axis(axis_), begin_, end_)};
  }
  static int64_t from_start(int64_t position, int64_t size) {
    if (position == open_end) return size;
    return position < 0 ? position + size : position;
  }

 private:
  int64_t axis_, begin_, end_;
};

/// Throws ShapeError unless `part` is a slice of `whole` from `begin` on.
void check_slice(const Shape& part, const Shape& whole, int64_t axis, int64_t begin, std::string_view op) {
  const size_t along = resolve_axis(axis, whole.rank(), op);
  bool fits = part.rank() == whole.rank();
  for (size_t i = 0; fits && i < whole.rank(); ++i) {
    const int64_t size = whole.dims()[i];
    const int64_t first = i == along ? Slice::from_start(begin, size) : 0;
    fits =
        first >= 0 && first <= size && (i == along ? part.dims()[i] <= size - first : part.dims()[i] == size);
  }
  if (!fits)
    throw ShapeError(fmt::format("{}: {} from {} along axis {} is not within {}", op, part.str(), begin, axis,
                                 whole.str()));
}

/// The transpose of a slice: pads with zeros.
struct PadLike : Op {
  PadLike(int64_t axis, int64_t begin)
      : Op({.linearity = Linearity::first,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .reads = InputSet::only(0),
            .gradient_reads = InputSet::none()}),
        axis_(axis),
        begin_(begin) {}
  std::string_view name() const override { return "pad_like"; }
  Attributes attributes() const override { return {{"axis", axis_}, {"begin", begin_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_slice(in[0]->shape, in[1]->shape, axis_, begin_, name());
    return {{in[0]->dtype, in[1]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    zero_elements(out);
    const int64_t size = call.inputs[0]->shape()[axis_];
    const int64_t begin = Slice::from_start(begin_, out.shape()[axis_]);
    Tensor part = out.slice(axis_, begin, begin + size);
    copy_elements(*call.inputs[0], part);
  }
  ChannelsLastOp with_channels_last(const InputSpecs& in, const Spec& out) const override {
    return along_axis_with_channels_last(*this, in, out);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {slice_like(rule.output_gradient(), rule.input(0), axis_, begin_), Variable()};
  }

 private:
  int64_t axis_, begin_;
};

/// A slice of the size of `like`.
struct SliceLike : ViewOp {
  SliceLike(int64_t axis, int64_t begin) : axis_(axis), begin_(begin) {}
  std::string_view name() const override { return "slice_like"; }
  Attributes attributes() const override { return {{"axis", axis_}, {"begin", begin_}}; }
  Specs infer(const InputSpecs& in) const override {
    check_slice(in[1]->shape, in[0]->shape, axis_, begin_, name());
    return {{in[0]->dtype, in[1]->shape}};
  }
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    Layout layout = in;
    const size_t axis = resolve_axis(axis_, in.shape.rank(), name());
    layout.offset += Slice::from_start(begin_, in.shape.dims()[axis]) * in.strides[axis];
    layout.shape = out.shape;
    return layout;
  }
  ChannelsLastOp with_channels_last(const InputSpecs& in, const Spec& out) const override {
    return along_axis_with_channels_last(*this, in, out);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {pad_like(rule.output_gradient(), rule.input(0), axis_, begin_), Variable()};
  }

 private:
  int64_t axis_, begin_;
};

}  // namespace

Variable slice_like(const Variable& x, const Variable& like, int64_t axis, int64_t begin) {
  return apply(std::make_shared<SliceLike>(axis, begin), {&x, &like}, std::source_location::current());
}
Variable reshape(const Operand& x, const Shape& shape) {
  return apply(kept_op<Reshape>(shape), {&x.variable()}, x.where());
}
Variable reshape_like(const Variable& x, const Variable& like) {
  return apply(shared_op<ReshapeLike>(), {&x, &like}, std::source_location::current());
}
Variable unfold_like(const Variable& x, const Variable& like) {
  return apply(shared_op<UnfoldLike>(), {&x, &like}, std::source_location::current());
}
Variable fold_rows(const Variable& x) {
  return apply(shared_op<FoldRows>(), {&x}, std::source_location::current());
}
Variable flatten(const Operand& x, int64_t first) {
  return apply(kept_op<Flatten>(first), {&x.variable()}, x.where());
}
Variable unsqueeze(const Operand& x, int64_t axis) { return unsqueeze_axes(x, Dims{axis}); }
Variable unsqueeze_axes(const Operand& x, const Dims& axes) {
  if (axes.empty()) return x.variable();
  return apply(kept_op<Unsqueeze>(axes), {&x.variable()}, x.where());
}
Variable squeeze(const Operand& x, const Axes& axes) {
  // "All" is resolved when the node is built, so that a short last batch of one row keeps its first axis.
  const Shape& shape = x.defined("squeeze").shape();
  Dims named = axes.list();
  if (named.empty())
    for (size_t i = 0; i < shape.rank(); ++i)
      if (shape.dims()[i] == 1) named.push_back(static_cast<int64_t>(i));
  if (named.empty()) return x.variable();
  return apply(kept_op<Squeeze>(named), {&x.variable()}, x.where());
}
Variable broadcast_to(const Operand& x, const Shape& shape) {
  return apply(kept_op<BroadcastTo>(shape), {&x.variable()}, x.where());
}
Variable expand_as(const Operand& x, const Operand& like) {
  return apply(shared_op<BroadcastLike>(), {&x.defined("expand_as"), &like.defined("expand_as")}, x.where());
}
Variable broadcast_like(const Variable& x, const Variable& like) {
  return apply(shared_op<BroadcastLike>(), {&x, &like}, std::source_location::current());
}
Variable transpose(const Operand& x) {
  const auto rank = static_cast<int64_t>(x.defined("transpose").rank());
  Dims order;
  for (int64_t i = 0; i < rank; ++i) order.push_back(i);
  if (rank >= 2) std::swap(order[order.size() - 1], order[order.size() - 2]);
  return apply(kept_op<Transpose>(order), {&x.variable()}, x.where());
}
Variable transpose(const Operand& x, const Axes& order) {
  return apply(kept_op<Transpose>(order.list()), {&x.variable()}, x.where());
}
Variable slice(const Operand& x, int64_t axis, int64_t begin, int64_t end) {
  return apply(slice_op(axis, begin, end), {&x.variable()}, x.where());
}
OpPtr slice_op(int64_t axis, int64_t begin, int64_t end) { return kept_op<Slice>(axis, begin, end); }
Variable pad_like(const Variable& x, const Variable& like, int64_t axis, int64_t begin) {
  return apply(std::make_shared<PadLike>(axis, begin), {&x, &like}, std::source_location::current());
}

void add_reshape_ops(OpRegistry& ops) {
  ops.add<ReshapeLike, UnfoldLike, BroadcastLike>(2);
  ops.add<FoldRows>(1);
  ops.add("reshape", 1, [](AttributeReader& a) { return std::make_shared<Reshape>(a.shape("shape")); });
  ops.add("flatten", 1, [](AttributeReader& a) { return std::make_shared<Flatten>(a.integer("first")); });
  ops.add("unsqueeze", 1, [](AttributeReader& a) { return std::make_shared<Unsqueeze>(a.integers("axes")); });
  ops.add("squeeze", 1, [](AttributeReader& a) { return std::make_shared<Squeeze>(a.integers("axes")); });
  ops.add("broadcast_to", 1,
          [](AttributeReader& a) { return std::make_shared<BroadcastTo>(a.shape("shape")); });
  ops.add("transpose", 1,
          [](AttributeReader& a) { return std::make_shared<Transpose>(a.integers("order")); });
  ops.add("slice", 1, [](AttributeReader& a) {
    return std::make_shared<Slice>(a.integer("axis"), a.integer("begin"), a.integer("end"));
  });
  ops.add("pad_like", 2, [](AttributeReader& a) {
    return std::make_shared<PadLike>(a.integer("axis"), a.integer("begin"));
  });
  ops.add("slice_like", 2, [](AttributeReader& a) {
    return std::make_shared<SliceLike>(a.integer("axis"), a.integer("begin"));
  });
}

}  // namespace espalier
