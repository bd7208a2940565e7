// stop_gradient: a value through which no gradient passes.
#include "espalier/core/gradient_rule.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// A view that plans replace by its input.
struct StopGradient : Op {
  StopGradient()
      : Op({.kind = OpKind::view,
            .linearity = Linearity::together,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .gradient_reads = InputSet::none(),
            .passes_no_gradient = true}) {}
  std::string_view name() const override { return "stop_gradient"; }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[0], *call.outputs[0]); }
  std::optional<Layout> view(const Layout& in, const Spec&) const override { return in; }
  std::optional<size_t> identity(const KnownInputs&, const Spec&) const override { return 0; }
  Gradients gradient(const GradientRule&) const override { return {Variable()}; }
};

}  // namespace

Variable stop_gradient(const Operand& x) { return apply_unary<StopGradient>(x); }

void add_stop_gradient_op(OpRegistry& ops) { ops.add<StopGradient>(1); }

}  // namespace espalier
