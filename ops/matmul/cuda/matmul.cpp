#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/matmul/cuda/cublaslt_product.h"

namespace espalier::cu {

namespace {

Bound bind_matmul(const Op& op, const KernelCall& call, const BindContext& context) {
  const Tensor &a = *call.inputs[0], &b = *call.inputs[1];
  LtProduct product(a, b, *call.outputs[0], *op.traits().matmul_form, {.workspace = Workspace::of(context)});
  if (!product.supported())
    throw UnsupportedError(fmt::format("matmul: cuBLASLt has none for {} {} and {}", name(a.dtype()),
                                       a.shape().str(), b.shape().str()));
  return bound([product = std::move(product)](RandomStream) mutable { product.run(); });
}

}  // namespace

void add_matmul_kernels(KernelRegistry& kernels) { kernels.add("matmul", bind_matmul); }

}  // namespace espalier::cu
