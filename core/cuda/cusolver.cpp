#include "espalier/core/cuda/cusolver.h"

#include <fmt/format.h>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"

namespace espalier::cu {

namespace {

/// The handles of the process, created on first use and never destroyed: they outlive every tensor.
struct Solver {
  std::mutex mutex;
  cusolverDnHandle_t handle = nullptr;
};
Solver& solver_of(int device) {
  static Solver* const all = new Solver[most_devices];
  return all[device];
}

}  // namespace

void check(cusolverStatus_t status, std::string_view what) {
  if (status == CUSOLVER_STATUS_SUCCESS) return;
  const std::string message =
      fmt::format("{}: cuSOLVER failed with status {}", what, static_cast<int>(status));
  if (status == CUSOLVER_STATUS_ALLOC_FAILED) throw OutOfMemory(message);
  if (status == CUSOLVER_STATUS_NOT_SUPPORTED || status == CUSOLVER_STATUS_ARCH_MISMATCH)
    throw UnsupportedError(message);
  throw DeviceError(message);
}

SolverCall::SolverCall() {
  Solver& solver = solver_of(current_device());
  lock_ = std::unique_lock(solver.mutex);
  if (!solver.handle) check(cusolverDnCreate(&solver.handle), "cusolverDnCreate");
  handle_ = solver.handle;
  check(cusolverDnSetStream(handle_, current_stream()), "cusolverDnSetStream");
}

}  // namespace espalier::cu
