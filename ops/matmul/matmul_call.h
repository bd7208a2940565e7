// A matrix product of tensors, as the libraries take it.
#pragma once
#include <optional>

#include "espalier/core/tensor.h"
#include "espalier/ops/matmul/gemm_primitive.h"

namespace espalier {

inline constexpr int64_t largest_matrix_size = 0x7fffffff;  ///< that the libraries can index

/// The axes before the last two.
Shape matmul_batch_of(const Shape& shape);
/// Whether a GEMM takes the matrices of that layout where they lie, seen transposed or not.
bool gemm_takes(const Layout& layout, bool transposed);
/// The product of two matrices, the first of a batch. Operands whose strides a GEMM cannot take are replaced
/// by copies.
Gemm one_product(Tensor& a, Tensor& b, const Tensor& out, bool transpose_a, bool transpose_b);
/// All products of a batch, or one in their place.
GemmBatch batch_of_products(const Gemm& gemm, const Tensor& a, const Tensor& b, const Tensor& out,
                            bool transpose_a);

/// A product of tensors that stay where they are, by the library that was measured to be faster.
class MatmulCall {
 public:
  MatmulCall(const Tensor& a, const Tensor& b, Tensor& out, bool transpose_a, bool transpose_b,
             GemmEpilogue epilogue = GemmEpilogue::none);

  /// Whether the library does the epilogue as well: then `run_with` is to be called.
  bool takes_epilogue() const { return primitive_ && product_.gemm.epilogue != GemmEpilogue::none; }
  void run_with(const void* bias);
  /// Whether the product is best made as a whole, by a primitive.
  bool has_primitive() const { return primitive_.has_value(); }
  /// out = alpha · a · b + beta · out. With the epilogue `accumulate`, beta is 1.
  void run(double alpha = 1, double beta = 0);
  /// One of a batch, on the calling thread alone.
  void run_one(int64_t index) const;
  /// Rows `begin` to `end` of it, on the calling thread alone; for products that are a single one.
  void run_rows(int64_t begin, int64_t end) const;
  /// Brings operands which are copied up to date; part of `run`.
  void refresh();
  const GemmBatch& product() const { return product_; }

 private:
  const Tensor *a_, *b_;
  Tensor* out_;
  Tensor seen_a_, seen_b_;  // the operands, or buffers for copies of them
  GemmBatch product_;
  GemmLibrary library_ = GemmLibrary::onednn;
  std::optional<GemmPrimitive> primitive_;
  Tensor sum_;  // the product by itself, where that and an addition are faster
};

}  // namespace espalier
