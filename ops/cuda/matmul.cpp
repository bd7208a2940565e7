#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/cuda/lt_product.h"

namespace espalier::cu {

Bound bind_matmul(const KernelCall& call, MatmulForm form) {
  const Tensor &a = *call.inputs[0], &b = *call.inputs[1];
  LtProduct product(a, b, *call.outputs[0], form);
  if (!product.supported())
    throw UnsupportedError(fmt::format("matmul: cuBLASLt has none for {} {} and {}", name(a.dtype()),
                                       a.shape().str(), b.shape().str()));
  return bound([product = std::move(product)](RandomStream) mutable { product.run(); });
}

}  // namespace espalier::cu
