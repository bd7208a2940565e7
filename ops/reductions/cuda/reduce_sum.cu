// Sums and means along axes.
#include "espalier/ops/reductions/cuda/reduce_kernels.cuh"

namespace espalier::cu::reduction {

Bound bind_sum(const Form& form, Tensor& output, double divisor) {
  Bound result;
  visit_elements(output.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>) result = bind_fold<Sum<T>>(form, output, divisor);
  });
  return result;
}

}  // namespace espalier::cu::reduction
