// Minima along axes.
#include "espalier/ops/reductions/cuda/reduce_kernels.cuh"

namespace espalier::cu::reduction {

Bound bind_min(const Form& form, Tensor& output) {
  Bound result;
  visit_elements(output.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>)
      result = bind_fold<Extreme<T, scalar::Minimum, false>>(form, output, 1);
  });
  return result;
}

}  // namespace espalier::cu::reduction
