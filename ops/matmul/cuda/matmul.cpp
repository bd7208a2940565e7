#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/matmul/cuda/cublaslt_product.h"
#include "espalier/ops/matmul/matmul.h"

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

/// Adds up products in the output, one after the other. A 16-bit sum is rounded after each.
class BoundSum : public BoundKernel {
 public:
  BoundSum(const Op& op, const KernelCall& call, const BindContext& context)
      : sum_(attribute<bool>(op, "adds") ? call.inputs[0] : nullptr), out_(call.outputs[0]) {
    const MatmulForm form{attribute<bool>(op, "transpose_a"), attribute<bool>(op, "transpose_b")};
    if (out_->elements() == 0) return;
    for (size_t k = sum_ ? 1 : 0; k + 1 < call.inputs.size(); k += 2) {
      const Tensor &a = *call.inputs[k], &b = *call.inputs[k + 1];
      if (a.elements() == 0) continue;
      // They run one after the other, so all use the same workspace.
      products_.emplace_back(
          a, b, *out_, form,
          LtOptions{.beta = sum_ || !products_.empty() ? 1.0 : 0.0, .workspace = Workspace::of(context)});
      if (!products_.back().supported())
        throw UnsupportedError(fmt::format("sum_of_products: cuBLASLt has none for {} {} and {}",
                                           name(a.dtype()), a.shape().str(), b.shape().str()));
    }
  }

  void run(RandomStream) override {
    if (sum_ && sum_->address() != out_->address()) copy_elements(first_summand(*sum_, out_->shape()), *out_);
    if (!sum_ && products_.empty()) zero_elements(*out_);
    for (LtProduct& product : products_) product.run();
  }

 private:
  const Tensor* sum_;
  Tensor* out_;
  std::vector<LtProduct> products_;
};

Bound bind_sum_of_products(const Op& op, const KernelCall& call, const BindContext& context) {
  return std::make_unique<BoundSum>(op, call, context);
}

}  // namespace

void add_matmul_kernels(KernelRegistry& kernels) {
  kernels.add("matmul", bind_matmul);
  kernels.add("sum_of_products", bind_sum_of_products);
}

}  // namespace espalier::cu
