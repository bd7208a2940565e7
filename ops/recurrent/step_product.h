// The products of a recurrence: each step's rows times one matrix, which is packed once for all steps.
#pragma once
#include <memory>
#include <vector>

#include "espalier/core/workspace.h"

namespace espalier {

/// The matrix is `inner` × `columns`, stored so or `transposed`, row-major. `rows` lists the numbers of rows
/// of the other operand that occur, the largest first.
struct StepProductSizes {
  DType dtype;
  std::vector<int64_t> rows;
  int64_t inner, columns;
  bool transposed;
};

class PackedStepProduct;

class StepProduct {
 public:
  /// Takes packed matrices and scratch memory from `workspace`.
  StepProduct(StepProductSizes sizes, Workspace& workspace);
  ~StepProduct();
  StepProduct(const StepProduct&) = delete;
  StepProduct& operator=(const StepProduct&) = delete;

  /// The bytes that it takes from a workspace.
  static int64_t workspace_bytes(const StepProductSizes& sizes);

  /// To be called before the products of a run. The matrix must stay where it is during them.
  void set_matrix(const void* matrix);
  /// out [rows, columns] = a [rows, inner] · matrix. All are contiguous.
  void run(int64_t rows, const void* a, void* out);

 private:
  const StepProductSizes sizes_;
  const void* matrix_ = nullptr;
  std::unique_ptr<PackedStepProduct> packed_;
};

}  // namespace espalier
