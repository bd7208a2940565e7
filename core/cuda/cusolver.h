// cuSOLVER as an object: a handle for each device, used by one thread at a time.
#pragma once
#include <cusolverDn.h>

#include <mutex>
#include <string_view>

namespace espalier::cu {

/// Throws unless `status` is success: OutOfMemory, UnsupportedError, or DeviceError. `what` names the call.
void check(cusolverStatus_t status, std::string_view what);

/// The current device's handle, for the current stream, while this lives: other threads wait.
class SolverCall {
 public:
  SolverCall();
  cusolverDnHandle_t handle() const { return handle_; }

 private:
  std::unique_lock<std::mutex> lock_;
  cusolverDnHandle_t handle_;
};

}  // namespace espalier::cu
