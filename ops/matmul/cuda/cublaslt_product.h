// A matrix product by cuBLASLt, bound to tensors that stay where they are.
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
  /// What beta multiplies, lying as the output does; if null, the output itself.
  const void* added = nullptr;
  /// In place of alpha and beta, if not null: numbers in device memory, of lt_scale_type.
  const void *device_alpha = nullptr, *device_beta = nullptr;
  Workspace workspace = {};  ///< for copies of operands whose strides the library cannot take
};

/// out = epilogue(alpha · a · b + beta · added). To be bound in the stream in which it will run.
class LtProduct {
 public:
  LtProduct(const Tensor& a, const Tensor& b, Tensor& out, MatmulForm form, const LtOptions& options = {});

  /// Whether the library can do it; if not, `run` must not be called.
  bool supported() const { return supported_; }
  /// Kernels that a run launches, but for copies of operands whose strides the library cannot take.
  size_t launches() const { return launches_.size(); }
  void run();

 private:
  struct Launch {
    const LtRecipe* recipe;
    const char *a, *b;  // ours, not those of the library
    const char* added;
    char* out;
  };

  void plan_launches(const GemmBatch& product, const LtOptions& options);
  LtCase describe(const Gemm& gemm, const LtOptions& options) const;

  const Tensor *a_, *b_;
  Tensor* out_;
  Tensor copy_a_, copy_b_;  // of operands that must be copied
  bool nothing_to_sum_ = false, supported_ = true;
  std::shared_ptr<const LtRecipe> whole_, rest_;
  std::optional<LtOperation> operation_;  // with addresses of its own
  SmallVector<Launch, 1> launches_;
  Tensor workspace_;
  cublasLtHandle_t handle_ = nullptr;
  LtScalars scalars_;
};

}  // namespace espalier::cu
