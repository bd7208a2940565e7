#include "espalier/ops/convolution/cudnn/cudnn.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "espalier/core/cuda/opened_library.h"
#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"

#ifndef ESPALIER_CUDNN_BUILT
#define ESPALIER_CUDNN_BUILT "libcudnn.so.9"
#endif

namespace espalier::cu {

namespace {

constexpr const char* variable = "ESPALIER_CUDNN_LIBRARY";

/// The handles of the process, created on first use and never destroyed: they outlive every tensor.
struct Handle {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
};
Handle& handle_of(int device) {
  static Handle* const all = new Handle[most_devices];
  return all[device];
}

}  // namespace

Cudnn open_cudnn() {
  const OpenedLibrary library("cuDNN", variable, {"libcudnn.so.9", ESPALIER_CUDNN_BUILT});
  Cudnn functions;
#define ESPALIER_CUDNN_FUNCTION(name) library.find(functions.name, #name);
  ESPALIER_CUDNN_FUNCTIONS(ESPALIER_CUDNN_FUNCTION)
#undef ESPALIER_CUDNN_FUNCTION
  const size_t version = functions.cudnnGetVersion();
  if (version / 10000 != CUDNN_MAJOR)
    throw UnsupportedError(fmt::format("{} is cuDNN {}, and Espalier was compiled for version {}",
                                       library.path(), version / 10000, CUDNN_MAJOR));
  return functions;
}

const Cudnn* cudnn() {
  // A static that throws is initialized again at the next call.
  static const std::optional<Cudnn> opened = []() -> std::optional<Cudnn> {
    try {
      return open_cudnn();
    } catch (const UnsupportedError&) {
      if (std::getenv(variable)) throw;
      return {};
    }
  }();
  return opened ? &*opened : nullptr;
}

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const std::string message = fmt::format("{}: {}", what, cudnn()->cudnnGetErrorString(status));
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    throw OutOfMemory(message);
  if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) throw UnsupportedError(message);
  throw DeviceError(message);
}

CudnnCall::CudnnCall() {
  Handle& shared = handle_of(current_device());
  lock_ = std::unique_lock(shared.mutex);
  if (!shared.handle) check(cudnn()->cudnnCreate(&shared.handle), "cudnnCreate");
  handle_ = shared.handle;
  check(cudnn()->cudnnSetStream(handle_, current_stream()), "cudnnSetStream");
}

}  // namespace espalier::cu
