// Reductions along axes: the choice of the kernel.
#include "espalier/ops/reductions/cuda/reduce_form.h"

namespace espalier::cu {

namespace {

/// Binds a reduction of input 0 along the axes of the op.
Bound bind_reduce(const Op& op, const KernelCall& call) {
  const auto [fold, axes] = *op.folding(CallSpecs(call).inputs());
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const reduction::Form form(*call.inputs[0], axes);
  switch (fold) {
    case Fold::max: return reduction::bind_max(form, out);
    case Fold::min: return reduction::bind_min(form, out);
    case Fold::mean: return reduction::bind_sum(form, out, static_cast<double>(form.count));
    case Fold::sum: break;
  }
  return reduction::bind_sum(form, out, 1);
}

}  // namespace

void add_reduce_kernels(KernelRegistry& kernels) {
  for (const char* op : {"sum", "mean", "max", "min", "sum_to_like"}) kernels.add(op, bind_reduce);
}

}  // namespace espalier::cu
