// Matrix products of tensors, in terms of GEMM calls.
#pragma once
#include <optional>

#include "espalier/core/cpu/work_watch.h"
#include "espalier/core/kept_values.h"
#include "espalier/core/op.h"
#include "espalier/core/workspace.h"
#include "espalier/ops/matmul/gemm_primitive.h"

namespace espalier {

inline constexpr int64_t largest_matrix_size = 0x7fffffff;  ///< that the libraries can index

/// The axes before the last two.
Shape matmul_batch_of(const Shape& shape);
/// Returns true if a GEMM can read matrices of this layout, transposed or not, without a copy.
bool gemm_takes(const Layout& layout, bool transposed);
/// All products of a batch, merged into one where possible. A GEMM must be able to read the operands,
/// transposed as `form` says, without a copy.
GemmBatch gemm_of(DType dtype, const Layout& a, const Layout& b, const Shape& out, MatmulForm form);
/// An upper bound, in bytes, of the workspace of a product of the inputs `first` and `first` + 1 of a call:
/// copies of operands whose strides a GEMM cannot read, on a GPU also of those whose batches it reads in many
/// launches, and on a CPU the memory of a MatmulCall for any library that may be chosen and any number of
/// threads of a replica.
int64_t product_workspace_bytes(const PlannedCall& call, MatmulForm form, const Shape& out,
                                GemmEpilogue epilogue = GemmEpilogue::none, size_t first = 0);

/// A product of tensors at fixed addresses, by the library that was measured to be fastest. Its scratch
/// memory is in the workspace, and what it packs of b in `kept`, if b is kept.
class MatmulCall {
 public:
  MatmulCall(const Tensor& a, const Tensor& b, Tensor& out, MatmulForm form,
             GemmEpilogue epilogue = GemmEpilogue::none, Workspace workspace = {},
             KeptValues* kept = nullptr);

  /// Returns true if the library computes the epilogue; then call `run_with` instead of `run`.
  bool takes_epilogue() const { return primitive_ && product_.gemm.epilogue != GemmEpilogue::none; }
  void run_with(const void* bias);
  /// out = alpha · a · b + beta · out. With the epilogue `accumulate`, beta is 1.
  void run(double alpha = 1, double beta = 0);
  /// See BoundKernel.
  void prepare() {
    if (packed_) (void)packed_b();
  }
  /// See RowKernel; a range of a batch is a number of whole matrices.
  int64_t rows_at_once(int64_t rows, int64_t tile) const;
  void run_rows(int64_t begin, int64_t end) const;
  /// Updates the copies of operands; part of `run`.
  void refresh();

 private:
  int64_t best_range(int64_t tile) const;
  void run_one(int64_t index) const;
  void run_primitive(const void* bias, const Tensor& to);
  const void* packed_b();

  const Tensor *a_, *b_;
  Tensor* out_;
  Tensor seen_a_, seen_b_;  // the operands, or buffers for copies of them
  GemmBatch product_;
  GemmLibrary library_ = GemmLibrary::onednn;
  std::optional<GemmPrimitive> primitive_;
  KeptValues* kept_;
  std::shared_ptr<KeptValue> packed_;  // b, if the primitive reads it so
  Tensor scratch_;                     // of the primitive
  WorkWatch watch_;
  Tensor sum_;  // the product alone, where a separate addition is faster
};

}  // namespace espalier
