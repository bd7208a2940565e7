// Runs the threads of a kernel.
#pragma once
#include <functional>
#include <string>

#include "cuda_runtime_api.h"

namespace emulated {

/// Runs `body` once for each thread of each block, one block after another. Returns an error message, or "".
/// The caller must not run two grids at the same time.
std::string run_grid(const dim3& grid, const dim3& block, size_t shared_bytes, bool reverse,
                     const std::function<void()>& body);

}  // namespace emulated
