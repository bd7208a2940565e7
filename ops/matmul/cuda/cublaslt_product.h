// A matrix product by cuBLASLt, bound to tensors at fixed addresses.
#pragma once
#include <optional>

#include "espalier/core/workspace.h"
#include "espalier/ops/matmul/cuda/cublaslt_recipe.h"

namespace espalier::cu {

struct LtOptions {
  LtEpilogue epilogue = LtEpilogue::none;
  void* vector = nullptr;  ///< of the output's dtype
  void* mask = nullptr;    ///< m rows of lt_mask_row(n) bits, aligned to 16 bytes
  double alpha = 1, beta = 0;
  /// The operand of beta, with the output's layout; null for the output itself.
  const void* added = nullptr;
  /// If not null, these numbers in device memory, of lt_scale_type, replace alpha and beta.
  const void *device_alpha = nullptr, *device_beta = nullptr;
  Workspace workspace = {};  ///< for copies of operands whose strides the library cannot take
};

/// out = epilogue(alpha · a · b + beta · added). Must be bound in the stream in which it will run.
class LtProduct {
 public:
  LtProduct(const Tensor& a, const Tensor& b, Tensor& out, MatmulForm form, const LtOptions& options = {});

  /// Returns true if the library supports the product; else `run` must not be called.
  bool supported() const { return supported_; }
  /// The number of kernels of a run, without copies of operands whose strides the library cannot read.
  size_t launches() const { return launches_.size(); }
  void run();

 private:
  struct Launch {
    const LtRecipe* recipe;
    const char *a, *b;  // row-major operands, not those of the library
    const char* added;
    char* out;
  };

  void plan_launches(const GemmBatch& product, const LtOptions& options);
  LtCase describe(const Gemm& gemm, const LtOptions& options) const;

  const Tensor *a_, *b_;
  Tensor* out_;
  Tensor copy_a_, copy_b_;  // copies of operands whose strides the library cannot read
  bool nothing_to_sum_ = false, supported_ = true;
  std::shared_ptr<const LtRecipe> whole_, rest_;
  std::optional<LtOperation> operation_;  // with the addresses of this product
  SmallVector<Launch, 1> launches_;
  Tensor workspace_;
  cublasLtHandle_t handle_ = nullptr;
  LtScalars scalars_;
};

}  // namespace espalier::cu
