#include "espalier/executor/sharding/gradient_bucket.h"

namespace espalier {

namespace {

Specs same_specs(const InputSpecs& in) {
  Specs specs;
  for (const Spec* spec : in) specs.push_back(*spec);
  return specs;
}

}  // namespace

Specs GradientBucket::infer(const InputSpecs& in) const { return same_specs(in); }
Specs WaitForGradients::infer(const InputSpecs& in) const { return same_specs(in); }

void GradientBucket::run_cpu(const KernelCall& call) const {
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (call.inputs[i]->address() != call.outputs[i]->address())
      copy_elements(*call.inputs[i], *call.outputs[i]);
}

}  // namespace espalier
