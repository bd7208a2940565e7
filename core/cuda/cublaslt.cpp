#include "espalier/core/cuda/cublaslt.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"

namespace espalier::cu {

namespace {

/// The process's handles. They outlive every tensor, static ones too.
struct Library {
  std::mutex mutex;
  std::map<int, cublasLtHandle_t> handles;
  std::map<std::pair<int, cudaStream_t>, Tensor> workspaces;
};
Library& library() {
  static auto* library = new Library;
  return *library;
}

}  // namespace

void check(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string message = fmt::format("{}: {}", what, cublasLtGetStatusName(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemory(message);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH)
    throw UnsupportedError(message);
  throw DeviceError(message);
}

cublasLtHandle_t lt_handle() {
  const int device = current_device();
  Library& x = library();
  const std::lock_guard lock(x.mutex);
  if (const auto known = x.handles.find(device); known != x.handles.end()) return known->second;
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "cublasLtCreate");
  return x.handles[device] = handle;
}

Tensor lt_workspace() {
  const std::pair key(current_device(), current_stream());
  Library& x = library();
  std::map<std::pair<int, cudaStream_t>, Tensor> unused;  // freed when the lock is
  const std::lock_guard lock(x.mutex);
  if (const auto known = x.workspaces.find(key); known != x.workspaces.end()) return known->second;
  for (auto each = x.workspaces.begin(); each != x.workspaces.end();) {
    const auto here = each++;
    if (here->second.storage().unique()) unused.insert(x.workspaces.extract(here));
  }
  return x.workspaces[key] = Tensor({lt_workspace_bytes}, DType::boolean, gpu(key.first));
}

LtLayout::LtLayout(cudaDataType type, int64_t rows, int64_t columns, int64_t leading) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                                   leading),
        "cublasLtMatrixLayoutCreate");
  layout_.reset(layout);
}

void LtLayout::repeat(int32_t count, int64_t step) {
  constexpr const char* call = "cublasLtMatrixLayoutSetAttribute";
  check(cublasLtMatrixLayoutSetAttribute(get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        call);
  check(cublasLtMatrixLayoutSetAttribute(get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                         sizeof step),
        call);
}

LtOperation::LtOperation(cublasComputeType_t compute, cudaDataType scale) {
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(&operation, compute, scale), "cublasLtMatmulDescCreate");
  operation_.reset(operation);
}

LtPreference::LtPreference() {
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  preference_.reset(preference);
}

}  // namespace espalier::cu
