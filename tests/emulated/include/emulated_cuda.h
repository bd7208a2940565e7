// The interface of the emulated device for tests, beyond CUDA.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"

namespace emulated {

struct Counters {
  uint64_t launches = 0;  ///< kernels and products of matrices enqueued, those of graphs not counted
  uint64_t graph_launches = 0;
  uint64_t kernels_run = 0;        ///< kernels and products executed, within graphs too
  uint64_t copies = 0;             ///< copies enqueued, those of graphs not counted
  uint64_t synchronizations = 0;   ///< calls which waited for a stream, an event or a device
  uint64_t allocations = 0;        ///< successful calls of cudaMalloc and cudaMallocAsync
  uint64_t compilations = 0;       ///< calls of nvrtcCompileProgram
  size_t nodes_in_last_graph = 0;  ///< of the graph launched last
  size_t live_bytes = 0;           ///< of device memory, on all devices
  size_t live_allocations = 0;
  size_t live_pinned_bytes = 0;
  size_t live_streams = 0, live_events = 0, live_graphs = 0, live_executables = 0;
};
Counters counters();

/// The k-th call of a function from now on fails with `error`. "kernel" stands for the execution of a kernel,
/// whose error is sticky, as on a device. Calls of cublasLt and NVRTC fail with their corresponding error.
void fail_next(const std::string& function, int k = 1, cudaError_t error = cudaErrorUnknown);
/// Cancels failures that have not occurred yet.
void cancel_failures();
/// Calls `f` once, before the next call of a function, in the thread that makes it.
void before_next(const std::string& function, std::function<void()> f);

/// Records the ranges that all threads open (NVTX) until `recorded_ranges`: each by its name behind those of
/// its domain and of the ranges around it, separated by slashes.
void record_ranges();
std::vector<std::string> recorded_ranges();

/// Whether a device's primary context exists: most calls make that of the current device, cudaSetDevice that
/// of its own. `forget_contexts` makes all devices appear unused.
bool has_context(int device);
void forget_contexts();

/// The last error message of the device: a deadlock, a write out of bounds. Also written to stderr.
std::string last_complaint();

/// Runs all enqueued work, clears sticky errors, and reads the environment again:
/// ESPALIER_EMULATED_GPUS (2), ESPALIER_EMULATED_MEMORY (bytes of each, 4 GiB),
/// ESPALIER_EMULATED_MULTIPROCESSORS (4: few blocks are fast; it is asked for once by a backend),
/// ESPALIER_EMULATED_EAGER (1: nothing is delayed), ESPALIER_EMULATED_REVERSE (1: threads and blocks run
/// from the last to the first), ESPALIER_EMULATED_PEERS (0: no device reaches another's memory).
void reset();

}  // namespace emulated
