// Matrix products of tensors, in terms of GEMM calls.
#pragma once
#include <optional>

#include "espalier/core/tensor.h"
#include "espalier/ops/matmul/gemm_primitive.h"

namespace espalier {

inline constexpr int64_t largest_matrix_size = 0x7fffffff;  ///< that the libraries can index

/// The axes before the last two.
Shape matmul_batch_of(const Shape& shape);
/// Returns true if a GEMM can read matrices of this layout, transposed or not, without a copy.
bool gemm_takes(const Layout& layout, bool transposed);
/// The first product of a batch. Operands whose strides a GEMM cannot read are replaced by copies.
Gemm one_product(Tensor& a, Tensor& b, const Tensor& out, bool transpose_a, bool transpose_b);
/// All products of a batch, merged into one where possible.
GemmBatch batch_of_products(const Gemm& gemm, const Tensor& a, const Tensor& b, const Tensor& out,
                            bool transpose_a);

/// A product of tensors at fixed addresses, by the library that was measured to be fastest.
class MatmulCall {
 public:
  MatmulCall(const Tensor& a, const Tensor& b, Tensor& out, bool transpose_a, bool transpose_b,
             GemmEpilogue epilogue = GemmEpilogue::none);

  /// Returns true if the library computes the epilogue; then call `run_with` instead of `run`.
  bool takes_epilogue() const { return primitive_ && product_.gemm.epilogue != GemmEpilogue::none; }
  void run_with(const void* bias);
  /// Returns true if a primitive computes the product, which is faster whole than split into rows.
  bool has_primitive() const { return primitive_.has_value(); }
  /// out = alpha · a · b + beta · out. With the epilogue `accumulate`, beta is 1.
  void run(double alpha = 1, double beta = 0);
  /// Computes one product of the batch, on the calling thread only.
  void run_one(int64_t index) const;
  /// Computes rows `begin` to `end` on the calling thread only; for a batch of one product.
  void run_rows(int64_t begin, int64_t end) const;
  /// Updates the copies of operands; part of `run`.
  void refresh();
  const GemmBatch& product() const { return product_; }

 private:
  const Tensor *a_, *b_;
  Tensor* out_;
  Tensor seen_a_, seen_b_;  // the operands, or buffers for copies of them
  GemmBatch product_;
  GemmLibrary library_ = GemmLibrary::onednn;
  std::optional<GemmPrimitive> primitive_;
  Tensor sum_;  // the product alone, where a separate addition is faster
};

}  // namespace espalier
