// Elements of an axis in reverse order, and moved round it.
#include <limits>
#include <memory>

#include "espalier/core/op_registry.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// The traits of ops that copy all or some elements of one input.
constexpr OpTraits copying = {.linearity = Linearity::together,
                              .precision = OpPrecision::follows,
                              .only_copies = true,
                              .gradient_reads = InputSet::none()};

class Flip : public Op {
 public:
  explicit Flip(Dims axes) : Op(copying), axes_(std::move(axes)) {}
  std::string_view name() const override { return "flip"; }
  Attributes attributes() const override {
    return {{"axes", std::vector<int64_t>(axes_.begin(), axes_.end())}};
  }
  bool mixes(size_t, size_t axis, const InputSpecs& in) const override {
    return Axes(axes_).mask(in[0]->shape.rank(), name())[axis];
  }
  Specs infer(const InputSpecs& in) const override {
    (void)Axes(axes_).mask(in[0]->shape.rank(), name());
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor& x = *call.inputs[0];
    if (x.elements() == 0) return;
    const auto flipped = Axes(axes_).mask(x.rank(), name());
    Layout layout = x.layout();
    for (size_t i = 0; i < x.rank(); ++i) {
      if (!flipped[i]) continue;
      layout.offset += (layout.shape.dims()[i] - 1) * layout.strides[i];
      layout.strides[i] = -layout.strides[i];
    }
    copy_elements(Tensor(x.storage(), std::move(layout), x.dtype()), *call.outputs[0]);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {flip(rule.output_gradient(), Axes(axes_))};
  }

 private:
  Dims axes_;
};

class Roll : public Op {
 public:
  Roll(int64_t shift, int64_t axis) : Op(copying), shift_(shift), axis_(axis) {}
  std::string_view name() const override { return "roll"; }
  Attributes attributes() const override { return {{"shift", shift_}, {"axis", axis_}}; }
  bool mixes(size_t, size_t axis, const InputSpecs& in) const override {
    return axis == resolve_axis(axis_, in[0]->shape.rank(), name());
  }
  Specs infer(const InputSpecs& in) const override {
    (void)resolve_axis(axis_, in[0]->shape.rank(), name());
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor& x = *call.inputs[0];
    Tensor& out = *call.outputs[0];
    if (x.elements() == 0) return;
    const int64_t size = x.shape()[axis_], first = ((shift_ % size) + size) % size;
    Tensor front = out.slice(axis_, 0, first), back = out.slice(axis_, first, size);
    copy_elements(x.slice(axis_, size - first, size), front);
    copy_elements(x.slice(axis_, 0, size - first), back);
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {roll(rule.output_gradient(), -shift_, axis_)};
  }

 private:
  int64_t shift_, axis_;
};

}  // namespace

Variable flip(const Operand& x, const Axes& axes) {
  return apply(std::make_shared<Flip>(axes.list()), {&x.variable()}, x.where());
}
Variable roll(const Operand& x, int64_t shift, int64_t axis) {
  if (shift == std::numeric_limits<int64_t>::min())
    located(x.where(), [] { throw Error("roll: the shift has no reverse in 64 bits"); });
  return apply(std::make_shared<Roll>(shift, axis), {&x.variable()}, x.where());
}

void add_flip_ops(OpRegistry& ops) {
  ops.add("flip", 1, [](AttributeReader& a) { return std::make_shared<Flip>(a.integers("axes")); });
  ops.add("roll", 1,
          [](AttributeReader& a) { return std::make_shared<Roll>(a.integer("shift"), a.integer("axis")); });
}

}  // namespace espalier
