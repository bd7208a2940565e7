// A matrix product of tensors, as the libraries take it.
#pragma once
#include <optional>

#include "espalier/core/op.h"
#include "espalier/core/workspace.h"
#include "espalier/ops/matmul/gemm_primitive.h"

namespace espalier {

inline constexpr int64_t largest_matrix_size = 0x7fffffff;  ///< that the libraries can index

/// The axes before the last two.
Shape matmul_batch_of(const Shape& shape);
/// Whether a GEMM takes the matrices of that layout where they lie, seen transposed or not.
bool gemm_takes(const Layout& layout, bool transposed);
/// The products of operands that a GEMM takes as they lie, seen transposed as the form says: all of a batch,
/// or one in their place.
GemmBatch gemm_of(DType dtype, const Layout& a, const Layout& b, const Shape& out, MatmulForm form);
/// The most that a product takes of the workspace of a call whose inputs `first` and `first` + 1 it
/// multiplies: copies of operands whose strides a GEMM cannot take, and on a CPU what a MatmulCall needs.
/// Which library computes it may not be known yet, nor how threads are divided over replicas.
int64_t product_workspace_bytes(const PlannedCall& call, MatmulForm form, const Shape& out,
                                GemmEpilogue epilogue = GemmEpilogue::none, size_t first = 0);

/// A product of tensors that stay where they are, by the library that was measured to be faster. What it
/// needs beside them it takes from the workspace.
class MatmulCall {
 public:
  MatmulCall(const Tensor& a, const Tensor& b, Tensor& out, MatmulForm form,
             GemmEpilogue epilogue = GemmEpilogue::none, Workspace workspace = {});

  /// Whether the library does the epilogue as well: then `run_with` is to be called.
  bool takes_epilogue() const { return primitive_ && product_.gemm.epilogue != GemmEpilogue::none; }
  void run_with(const void* bias);
  /// out = alpha · a · b + beta · out. With the epilogue `accumulate`, beta is 1.
  void run(double alpha = 1, double beta = 0);
  /// As RowKernel says; ranges of batches are whole matrices.
  int64_t rows_at_once(int64_t rows, int64_t tile) const;
  void run_rows(int64_t begin, int64_t end) const;
  /// Brings operands which are copied up to date; part of `run`.
  void refresh();

 private:
  int64_t best_range(int64_t tile) const;
  void run_one(int64_t index) const;
  void run_primitive(const void* bias, const Tensor& to);

  const Tensor *a_, *b_;
  Tensor* out_;
  Tensor seen_a_, seen_b_;  // the operands, or buffers for copies of them
  GemmBatch product_;
  GemmLibrary library_ = GemmLibrary::onednn;
  std::optional<GemmPrimitive> primitive_;
  Tensor scratch_;  // of the primitive
  Tensor sum_;      // the product by itself, where that and an addition are faster
};

}  // namespace espalier
