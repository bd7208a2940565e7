#include "espalier/ops/axis_groups.h"

#include <algorithm>

#include "espalier/core/op_registry.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

OpTraits axis_group_traits() {
  return {.kind = OpKind::view,
          .precision = OpPrecision::follows,
          .only_copies = true,
          .reads = InputSet::only(0),
          .gradient_reads = InputSet::none()};
}

class ReshapeBy : public Op {
 public:
  explicit ReshapeBy(std::vector<std::vector<AxisOf>> groups)
      : Op(axis_group_traits()), groups_(std::move(groups)) {}
  std::string_view name() const override { return "reshape_by"; }
  Attributes attributes() const override {
    std::vector<int64_t> operands, axes, counts;
    for (const auto& group : groups_) {
      counts.push_back(static_cast<int64_t>(group.size()));
      for (const AxisOf& size : group) {
        operands.push_back(size.operand);
        axes.push_back(size.axis);
      }
    }
    return {{"operands", operands}, {"axes", axes}, {"counts", counts}};
  }
  Specs infer(const InputSpecs& in) const override {
    Dims dims;
    for (const auto& group : groups_) {
      Dims sizes;
      for (const AxisOf& of : group) {
        if (of.operand < 0 || static_cast<size_t>(of.operand) >= in.size())
          throw Error(fmt::format("reshape_by: there is no operand {}", of.operand));
        sizes.push_back(in[static_cast<size_t>(of.operand)]->shape[of.axis]);
      }
      dims.push_back(Shape(std::move(sizes)).elements());
    }
    return {{in[0]->dtype, resolve(Shape(std::move(dims)), in[0]->shape.elements(), name())}};
  }
  std::optional<Layout> view(const Layout& in, const Spec& out) const override {
    Layout layout;
    if (!reshape_layout(in, out.shape, layout)) return std::nullopt;
    return layout;
  }
  std::optional<size_t> identity(const KnownInputs& in, const Spec& out) const override {
    return *in.specs[0] == out ? std::optional<size_t>(0) : std::nullopt;
  }
  void run_cpu(const KernelCall& call) const override {
    Layout layout(call.inputs[0]->shape());  // the output in the shape of the input
    layout.offset = call.outputs[0]->layout().offset;
    Tensor same(call.outputs[0]->storage(), std::move(layout), call.outputs[0]->dtype());
    copy_elements(*call.inputs[0], same);
  }
  Gradients gradient(const GradientRule& rule) const override {
    Gradients result(rule.inputs());
    if (rule.wants(0)) result[0] = reshape_like(rule.output_gradient(), rule.input(0));
    return result;
  }

 private:
  std::vector<std::vector<AxisOf>> groups_;
};

/// The layout of the diagonal of two axes.
Layout diagonal_layout(Layout layout, size_t first, size_t second) {
  layout.strides[first] += layout.strides[second];
  Dims dims, strides;
  for (size_t i = 0; i < layout.strides.size(); ++i) {
    if (i == second) continue;
    dims.push_back(layout.shape.dims()[i]);
    strides.push_back(layout.strides[i]);
  }
  layout.shape = Shape(std::move(dims));
  layout.strides = std::move(strides);
  return layout;
}

/// What both ops on diagonals have: their axes.
class DiagonalOp : public Op {
 public:
  DiagonalOp(const OpTraits& traits, int64_t first, int64_t second)
      : Op(traits), first_(first), second_(second) {}
  Attributes attributes() const override { return {{"first", first_}, {"second", second_}}; }

 protected:
  Layout diagonal_of(const Layout& layout) const {
    const size_t rank = layout.shape.rank();
    return diagonal_layout(layout, resolve_axis(first_, rank, name()), resolve_axis(second_, rank, name()));
  }
  /// The shape of the diagonal.
  Shape infer_diagonal(const Shape& shape) const {
    const size_t first = resolve_axis(first_, shape.rank(), name()),
                 second = resolve_axis(second_, shape.rank(), name());
    if (first == second || shape.dims()[first] != shape.dims()[second])
      throw ShapeError(fmt::format("{}: axes {} and {} of shape {} have no diagonal: two axes of one size do",
                                   name(), first_, second_, shape.str()));
    return diagonal_layout(Layout(shape), first, second).shape;
  }
  int64_t first_, second_;
};

struct TakeDiagonal : DiagonalOp {
  TakeDiagonal(int64_t first, int64_t second) : DiagonalOp(axis_group_traits(), first, second) {}
  std::string_view name() const override { return "take_diagonal"; }
  Specs infer(const InputSpecs& in) const override { return {{in[0]->dtype, infer_diagonal(in[0]->shape)}}; }
  std::optional<Layout> view(const Layout& in, const Spec&) const override { return diagonal_of(in); }
  void run_cpu(const KernelCall& call) const override {
    const Tensor& in = *call.inputs[0];
    copy_elements(Tensor(in.storage(), diagonal_of(in.layout()), in.dtype()), *call.outputs[0]);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {put_diagonal_like(rule.output_gradient(), rule.input(0), first_, second_)};
  }
};

struct PutDiagonalLike : DiagonalOp {
  PutDiagonalLike(int64_t first, int64_t second)
      : DiagonalOp({.precision = OpPrecision::follows,
                    .only_copies = true,
                    .reads = InputSet::only(0),
                    .gradient_reads = InputSet::none()},
                   first, second) {}
  std::string_view name() const override { return "put_diagonal_like"; }
  Specs infer(const InputSpecs& in) const override {
    if (!(infer_diagonal(in[1]->shape) == in[0]->shape))
      throw ShapeError(fmt::format("put_diagonal_like: {} is not the diagonal of {}", in[0]->shape.str(),
                                   in[1]->shape.str()));
    return {{in[0]->dtype, in[1]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    zero_elements(out);
    Tensor part(out.storage(), diagonal_of(out.layout()), out.dtype());
    copy_elements(*call.inputs[0], part);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {take_diagonal(rule.output_gradient(), first_, second_), Variable()};
  }
};

}  // namespace

Variable reshape_by(const Variable& x, const std::vector<Variable>& like,
                    const std::vector<std::vector<AxisOf>>& groups) {
  SmallVector<const Variable*, 8> inputs{&x};
  for (const Variable& v : like) inputs.push_back(&v);
  return apply(std::make_shared<ReshapeBy>(groups), {inputs.data(), inputs.size()},
               std::source_location::current());
}
Variable take_diagonal(const Variable& x, int64_t first, int64_t second) {
  return apply(std::make_shared<TakeDiagonal>(first, second), {&x}, std::source_location::current());
}
Variable put_diagonal_like(const Variable& x, const Variable& like, int64_t first, int64_t second) {
  return apply(std::make_shared<PutDiagonalLike>(first, second), {&x, &like},
               std::source_location::current());
}

void add_axis_group_ops(OpRegistry& ops) {
  ops.add("reshape_by", [](AttributeReader& a) {
    const Dims operands = a.integers("operands"), axes = a.integers("axes"), counts = a.integers("counts");
    std::vector<std::vector<AxisOf>> groups;
    size_t at = 0;
    for (const int64_t count : counts) {
      groups.emplace_back();
      for (int64_t i = 0; i < count; ++i, ++at) {
        if (at >= operands.size() || at >= axes.size()) a.refuse("counts");
        groups.back().push_back({operands[at], axes[at]});
      }
    }
    return std::make_shared<ReshapeBy>(std::move(groups));
  });
  ops.add("take_diagonal", [](AttributeReader& a) {
    return std::make_shared<TakeDiagonal>(a.integer("first"), a.integer("second"));
  });
  ops.add("put_diagonal_like", [](AttributeReader& a) {
    return std::make_shared<PutDiagonalLike>(a.integer("first"), a.integer("second"));
  });
}

}  // namespace espalier
