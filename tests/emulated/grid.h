// Runs the threads of a kernel.
#pragma once
#include <functional>
#include <string>

#include "cuda_runtime_api.h"

namespace emulated {

struct GridOrder {
  bool reverse = false;
  /// All blocks run in turn, so that they can wait for each other. Only dynamic shared memory is a block's
  /// own.
  bool cooperative = false;
};

/// Runs `body` once for each thread of each block, one block after another unless they cooperate. Returns an
/// error message, or "". The caller must not run two grids at the same time.
std::string run_grid(const dim3& grid, const dim3& block, size_t shared_bytes, GridOrder order,
                     const std::function<void()>& body);

}  // namespace emulated
