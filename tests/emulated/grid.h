// Runs the threads of a kernel.
#pragma once
#include <functional>
#include <string>

#include "cuda_runtime_api.h"

namespace emulated {

/// Runs `body` once for each thread of each block, one block after another. Returns what was wrong with it,
/// or nothing. One grid runs at a time: the caller sees to that.
std::string run_grid(const dim3& grid, const dim3& block, size_t shared_bytes, bool reverse,
                     const std::function<void()>& body);

}  // namespace emulated
