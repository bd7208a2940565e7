#include "espalier/ops/reductions/sample_correction.h"

#include "espalier/core/gradient_rule.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

struct SampleCorrection : Op {
  SampleCorrection() : Op({.reads = InputSet::none(), .gradient_reads = InputSet::none()}) {}
  std::string_view name() const override { return "sample_correction"; }
  Specs infer(const InputSpecs& in) const override {
    check_dtype<Reals>(*in[0], name());
    return {{in[0]->dtype, Shape()}};
  }
  void run_cpu(const KernelCall& call) const override {
    const double n =
        static_cast<double>(call.inputs[0]->elements()) / static_cast<double>(call.inputs[1]->elements());
    visit(call.outputs[0]->dtype(),
          [&]<class T>(TypeTag<T>) { *detail::output<T>(call) = static_cast<T>(n > 1 ? n / (n - 1) : 1.0); });
  }
  Gradients gradient(const GradientRule&) const override { return {Variable(), Variable()}; }
};

}  // namespace

Variable sample_correction(const Variable& x, const Variable& variance) {
  return apply(shared_op<SampleCorrection>(), {&x, &variance}, std::source_location::current());
}
bool is_sample_correction(const Op& op) { return &op == shared_op<SampleCorrection>().get(); }

void add_sample_correction_op(OpRegistry& ops) { ops.add<SampleCorrection>(2); }

}  // namespace espalier
