#include "espalier/ops/recurrent/step_product.h"

#include "espalier/ops/matmul/gemm.h"
#include "espalier/ops/recurrent/packed_step_product.h"
#include "espalier/ops/recurrent/panel_step_product.h"

namespace espalier {

namespace {

/// Packing costs some microseconds; small products are done before.
bool worth_packing(const StepProductSizes& s) { return s.inner * s.columns >= 64 * 64; }

}  // namespace

Gemm step_gemm(const StepProductSizes& s, int64_t rows) {
  return {.dtype = s.dtype,
          .transpose_a = false,
          .transpose_b = s.transposed,
          .m = rows,
          .n = s.columns,
          .k = s.inner,
          .lda = s.inner,
          .ldb = s.transposed ? s.inner : s.columns,
          .ldc = s.columns};
}

StepProduct::StepProduct(StepProductSizes sizes, Workspace& workspace) : sizes_(std::move(sizes)) {
  if (!worth_packing(sizes_)) return;
  packed_ = onednn_step_product(sizes_, workspace);
  if (!packed_) packed_ = panel_step_product(sizes_, workspace);
}
StepProduct::~StepProduct() = default;

int64_t StepProduct::workspace_bytes(const StepProductSizes& s) {
  if (!worth_packing(s)) return 0;
  const std::optional<int64_t> bytes = onednn_step_product_bytes(s);
  return bytes ? *bytes : panel_step_product_bytes(s);
}

void StepProduct::set_matrix(const void* matrix) {
  matrix_ = matrix;
  if (packed_) packed_->set_matrix(matrix);
}

void StepProduct::run(int64_t rows, const void* a, void* out) {
  if (packed_) return packed_->run(rows, a, out);
  run_gemm(step_gemm(sizes_, rows), a, matrix_, out, GemmLibrary::onednn);
}

}  // namespace espalier
