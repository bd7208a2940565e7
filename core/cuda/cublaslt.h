// cuBLASLt as objects: checked calls, a handle for each device, descriptors, and the workspace of a stream.
#pragma once
#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>

#include "espalier/core/tensor.h"

namespace espalier::cu {

/// Throws unless `status` is success: OutOfMemory, UnsupportedError, or DeviceError. `what` names the call.
void check(cublasStatus_t status, std::string_view what);

/// The current device's handle, created on first use and never destroyed.
cublasLtHandle_t lt_handle();

inline constexpr int64_t lt_workspace_bytes = int64_t{32} << 20;
/// Workspace for products in the current stream; they run one after another and share it. It is freed with
/// its last reference, or when another stream needs one.
Tensor lt_workspace();

struct LtFree {
  void operator()(cublasLtMatmulDesc_t x) const { cublasLtMatmulDescDestroy(x); }
  void operator()(cublasLtMatrixLayout_t x) const { cublasLtMatrixLayoutDestroy(x); }
  void operator()(cublasLtMatmulPreference_t x) const { cublasLtMatmulPreferenceDestroy(x); }
};
template <class T>
using LtPointer = std::unique_ptr<std::remove_pointer_t<T>, LtFree>;

/// Matrices in memory, column by column.
class LtLayout {
 public:
  LtLayout(cudaDataType type, int64_t rows, int64_t columns, int64_t leading);
  /// The number of matrices and the distance between them, in elements.
  void repeat(int32_t count, int64_t step);
  cublasLtMatrixLayout_t get() const { return layout_.get(); }

 private:
  LtPointer<cublasLtMatrixLayout_t> layout_;
};

/// The epilogue of a product, and its scalars.
class LtOperation {
 public:
  LtOperation(cublasComputeType_t compute, cudaDataType scale);
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check(cublasLtMatmulDescSetAttribute(operation_.get(), attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
  cublasLtMatmulDesc_t get() const { return operation_.get(); }

 private:
  LtPointer<cublasLtMatmulDesc_t> operation_;
};

/// The limits of an algorithm: workspace and the alignment of operands.
class LtPreference {
 public:
  LtPreference();
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference_.get(), attribute, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute");
  }
  cublasLtMatmulPreference_t get() const { return preference_.get(); }

 private:
  LtPointer<cublasLtMatmulPreference_t> preference_;
};

}  // namespace espalier::cu
