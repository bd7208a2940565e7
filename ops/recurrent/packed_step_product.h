// A StepProduct of a matrix that is packed.
#pragma once
#include <memory>
#include <optional>

#include "espalier/ops/matmul/gemm.h"
#include "espalier/ops/recurrent/step_product.h"

namespace espalier {

/// The product of a step with so many rows.
Gemm step_gemm(const StepProductSizes& sizes, int64_t rows);

class PackedStepProduct {
 public:
  virtual ~PackedStepProduct() = default;
  /// Packs the matrix.
  virtual void set_matrix(const void* matrix) = 0;
  /// out = a · matrix
  virtual void run(int64_t rows, const void* a, void* out) = 0;
};

/// By oneDNN. Nothing where that packs no matrix: where the library was built without it, for other dtypes
/// than float32, and on processors for which it has no packed products.
std::unique_ptr<PackedStepProduct> onednn_step_product(const StepProductSizes& sizes, Workspace& workspace);
/// The bytes that this takes from a workspace; none where there is none.
std::optional<int64_t> onednn_step_product_bytes(const StepProductSizes& sizes);

}  // namespace espalier
