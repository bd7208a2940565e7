// Ops that show their first input, with other inputs for evaluators and plans.
#pragma once
#include "espalier/core/gradient_rule.h"

namespace espalier {

/// A view of the whole first input. The gradient goes to that input.
class FirstInput : public Op {
 public:
  /// `reads`: as in OpTraits.
  explicit FirstInput(InputSet reads = InputSet::only(0))
      : Op({.kind = OpKind::view,
            .linearity = Linearity::first,
            .precision = OpPrecision::follows,
            .only_copies = true,
            .reads = reads,
            .gradient_reads = InputSet::none()}) {}
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[0], *call.outputs[0]); }
  std::optional<Layout> view(const Layout& in, const Spec&) const override { return in; }
  std::optional<size_t> identity(const KnownInputs&, const Spec&) const override { return 0; }
  Gradients gradient(const GradientRule& rule) const override {
    Gradients gradients(rule.inputs());
    gradients[0] = rule.output_gradient();
    return gradients;
  }
};

}  // namespace espalier
