// The largest elements of windows, by their places, and the transpose of that.
#include "espalier/core/gradient_rule.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/indexing/indices.h"
#include "espalier/ops/pooling/pool.h"
#include "espalier/ops/pooling/pool_op.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// Ops whose input 1 are the places that pool_argmax found.
class PlacesOp : public PoolOp {
 public:
  using PoolOp::PoolOp;

 protected:
  /// Throws ShapeError or TypeError unless there is a place for each window of `x`.
  void check_places(const Spec& indices, const Shape& x) const {
    check_indices(indices, name());
    if (const Shape windows = form().output(x, name()); !(indices.shape == windows))
      throw ShapeError(fmt::format("{}: indices of shape {} in place of {}, the windows of {}", name(),
                                   indices.shape.str(), windows.str(), x.str()));
  }
  /// Calls an op of inputs 0 and 1 along axis 1 of what is seen as [planes, places, channels that come last].
  /// x: the shape that is pooled, of at least one element.
  void run_in_planes(std::string_view along_axis, const Shape& x, const KernelCall& call) const {
    const int64_t planes = pooled_planes(x, form()), width = width_of(x);
    const auto in_planes = [&](const Tensor& t) {
      return t.reshape({planes, t.elements() / (planes * width), width});
    };
    const Tensor values = in_planes(call.inputs[0]->contiguous_copy());
    const Tensor indices = in_planes(call.inputs[1]->contiguous_copy());
    Tensor out = in_planes(*call.outputs[0]);
    KernelCall seen;
    seen.inputs = {&values, &indices};
    seen.outputs = {&out};
    make_op(along_axis, {{"axis", int64_t{1}}})->run_cpu(seen);
  }
};

struct PoolTake : PlacesOp {
  explicit PoolTake(PoolForm form)
      : PlacesOp(std::move(form), {.linearity = Linearity::first,
                                   .takes_halves = true,
                                   .picks_from = InputSet::only(0),
                                   .gradient_reads = InputSet::only(1)}) {}
  std::string_view name() const override { return "pool_take"; }
  Specs infer(const InputSpecs& in) const override {
    check_places(*in[1], in[0]->shape);
    return {{in[0]->dtype, in[1]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    if (call.outputs[0]->elements() > 0) run_in_planes("take_along_axis", call.inputs[0]->shape(), call);
  }
  Gradients gradient(const GradientRule& rule) const override {
    if (!rule.wants(0)) return {Variable(), Variable()};
    return {pool_add_like(rule.output_gradient(), rule.input(1), rule.input(0), form(), rule.where()),
            Variable()};
  }
};

/// The transpose of PoolTake: each element is the sum of those windows that found it.
struct PoolAddLike : PlacesOp {
  explicit PoolAddLike(PoolForm form)
      : PlacesOp(std::move(form), {.linearity = Linearity::first,
                                   .adds_back = true,
                                   .reads = InputSet::first(2),
                                   .gradient_reads = InputSet::only(1)}) {}
  std::string_view name() const override { return "pool_add_like"; }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    return input < 2 && PoolOp::mixes(0, axis, in);
  }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Numbers>(*in[0], name());
    check_places(*in[1], in[2]->shape);
    if (!(in[0]->shape == in[1]->shape))
      throw ShapeError(fmt::format("{}: values of shape {} in place of {}", name(), in[0]->shape.str(),
                                   in[1]->shape.str()));
    return {{in[0]->dtype, in[2]->shape}};
  }
  void run_cpu(const KernelCall& call) const override {
    if (call.outputs[0]->elements() > 0) run_in_planes("add_along_axis_like", call.outputs[0]->shape(), call);
  }
  Gradients gradient(const GradientRule& rule) const override {
    if (!rule.wants(0)) return {Variable(), Variable(), Variable()};
    return {pool_take(rule.output_gradient(), rule.input(1), form(), rule.where()), Variable(), Variable()};
  }
};

}  // namespace

Variable pool_take(const Variable& x, const Variable& indices, const PoolForm& form,
                   const std::source_location& where) {
  return apply(std::make_shared<PoolTake>(form), {&x, &indices}, where);
}

Variable pool_add_like(const Variable& g, const Variable& indices, const Variable& like, const PoolForm& form,
                       const std::source_location& where) {
  return apply(std::make_shared<PoolAddLike>(form), {&g, &indices, &like}, where);
}

void add_pool_take_ops(OpRegistry& ops) {
  ops.add("pool_take", 2, [](AttributeReader& a) { return std::make_shared<PoolTake>(PoolForm::read(a)); });
  ops.add("pool_add_like", 3,
          [](AttributeReader& a) { return std::make_shared<PoolAddLike>(PoolForm::read(a)); });
}

}  // namespace espalier
