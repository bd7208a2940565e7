// Conversion between element types.
#include "espalier/ops/elementwise/cast.h"

#include "espalier/core/cpu/cast_row.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

struct Cast : Op {
  explicit Cast(DType to)
      : Op({.kind = OpKind::pointwise,
            .linearity = is_real(to) ? Linearity::together : Linearity::none,
            .takes_halves = true,
            .gradient_reads = InputSet::none()}),
        to_(to) {}
  std::string_view name() const override { return "cast"; }
  Attributes attributes() const override { return {{"dtype", std::string(espalier::name(to_))}}; }
  Specs infer(const InputSpecs& in) const override { return {{to_, in[0]->shape}}; }
  ElementLoops loops(const InputSpecs& in) const override {
    return {.row = cast_row(in[0]->dtype, to_), .functor = functor()};
  }
  void run_cpu(const KernelCall& call) const override {
    run_rows(call, cast_row(call.inputs[0]->dtype(), to_));
  }
  Gradients gradient(const GradientRule& rule) const override {
    return {cast(rule.output_gradient(), rule.input().dtype())};
  }

 private:
  std::string_view functor() const {
    return visit_stored(to_, []<class To>(TypeTag<To>) { return type_name<scalar::Cast<To>>(); });
  }

  DType to_;
};

}  // namespace

OpPtr cast_op(DType to) { return std::make_shared<Cast>(to); }

Variable cast(const Operand& x, DType dtype) {
  if (x.defined("cast").dtype() == dtype) return x.variable();
  return apply(cast_op(dtype), {&x.variable()}, x.where());
}

void add_cast_op(OpRegistry& ops) {
  ops.add("cast", 1, [](AttributeReader& a) { return cast_op(a.dtype("dtype")); });
}

}  // namespace espalier
