// Kernel launches and their limits.
#include <algorithm>

#include "grid.h"
#include "library.h"
#include "runtime.h"

namespace emulated {
namespace {

constexpr size_t usual_shared_bytes = 49152, most_shared_bytes = 232448;

int resident_blocks(unsigned threads, size_t dynamic_shared) {
  constexpr size_t reserved = 1024, all = 233472;
  const auto by_shared = static_cast<int>(all / (dynamic_shared + reserved));
  return std::min({32, 2048 / (static_cast<int>(threads + 31) / 32 * 32), by_shared});
}

bool is_cooperative(const cudaLaunchConfig_t& config) {
  return std::any_of(config.attrs, config.attrs + config.numAttrs, [](const cudaLaunchAttribute& each) {
    return each.id == cudaLaunchAttributeCooperative && each.val.cooperative != 0;
  });
}

cudaError_t check(Runtime& r, const cudaLaunchConfig_t& config, const void* function) {
  const dim3 &block = config.blockDim, &grid = config.gridDim;
  const auto bad = [&](const std::string& what) { return r.complain(cudaErrorInvalidConfiguration, what); };
  if (function == nullptr) return cudaErrorInvalidDeviceFunction;
  if (block.x == 0 || block.y == 0 || block.z == 0 || grid.x == 0 || grid.y == 0 || grid.z == 0)
    return bad("a launch without threads");
  if (block.x > 1024 || block.y > 1024 || block.z > 64 || block.x * block.y * block.z > 1024)
    return bad("a launch with more than 1024 threads in a block");
  if (grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) return bad("a launch with too large a grid");
  if (config.numAttrs > 0 && config.attrs == nullptr) return cudaErrorInvalidValue;
  const auto allowed = r.dynamic_shared.find(function);
  const size_t most =
      allowed == r.dynamic_shared.end() ? usual_shared_bytes : static_cast<size_t>(allowed->second);
  if (config.dynamicSmemBytes > most)
    return r.complain(cudaErrorInvalidValue, "a launch with more shared memory than its kernel was allowed");
  const uint64_t blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
  const int resident = resident_blocks(block.x * block.y * block.z, config.dynamicSmemBytes);
  if (is_cooperative(config) &&
      blocks > static_cast<uint64_t>(resident) * static_cast<uint64_t>(r.multiprocessors))
    return r.complain(cudaErrorCooperativeLaunchTooLarge,
                      "a cooperative launch of more blocks than run at once");
  return cudaSuccess;
}

}  // namespace

cudaError_t enqueue_kernel(Runtime& r, Call& call, cudaStream_t handle, std::function<std::string()> run) {
  const auto stream = r.stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->device != this_thread.device)
    return r.complain(cudaErrorInvalidResourceHandle,
                      "a launch on a stream of another device than the current one");
  if (!stream->capture) ++r.counters.launches;
  return r.enqueue(call, stream, {cudaGraphNodeTypeKernel, stream->device, [&r, run = std::move(run)] {
                                    ++r.counters.kernels_run;
                                    cudaError_t error = cudaErrorLaunchFailure;
                                    if (r.inject("kernel", error)) return error;
                                    const std::string complaint = run();
                                    return complaint.empty() ? cudaSuccess
                                                             : r.complain(cudaErrorLaunchFailure, complaint);
                                  }});
}

cudaError_t launch(const cudaLaunchConfig_t* config, const void* function, std::function<void()> body) {
  return api("cudaLaunchKernel", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    if (config == nullptr) return cudaErrorInvalidValue;
    const cudaError_t error = check(r, *config, function);
    if (error != cudaSuccess) return error;
    return enqueue_kernel(
        r, call, config->stream,
        [&r, grid = config->gridDim, block = config->blockDim, shared = config->dynamicSmemBytes,
         cooperative = is_cooperative(*config), body = std::move(body)] {
          return run_grid(grid, block, shared, {.reverse = r.reverse, .cooperative = cooperative}, body);
        });
  });
}

}  // namespace emulated

using namespace emulated;

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  std::function<void()> body;
  {
    Runtime& r = runtime();
    const Call call;
    auto* kernel = static_cast<CUkern_st*>(const_cast<void*>(function));
    if (!r.kernels.contains(kernel)) {
      r.complain(cudaErrorInvalidDeviceFunction,
                 "cudaLaunchKernelExC of a function which comes from no library: use cudaLaunchKernelEx");
      return this_thread.last_error = cudaErrorInvalidDeviceFunction;
    }
    body = kernel->bind(arguments);
  }
  return launch(config, function, std::move(body));
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return api("cudaFuncSetAttribute", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
      return value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        static_cast<size_t>(value) > most_shared_bytes)
      return cudaErrorInvalidValue;
    r.dynamic_shared[function] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return api("cudaFuncGetAttributes", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    if (attributes == nullptr || function == nullptr) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    const auto allowed = r.dynamic_shared.find(function);
    attributes->maxDynamicSharedSizeBytes =
        allowed == r.dynamic_shared.end() ? static_cast<int>(usual_shared_bytes) : allowed->second;
    attributes->preferredShmemCarveout = -1;
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block_size,
                                                          size_t dynamic_shared) {
  return api("cudaOccupancyMaxActiveBlocksPerMultiprocessor", Needs::HealthyDevice, [&](Runtime&, Call&) {
    if (blocks == nullptr || block_size <= 0 || block_size > 1024) return cudaErrorInvalidValue;
    if (function == nullptr) return cudaErrorInvalidDeviceFunction;
    *blocks = resident_blocks(static_cast<unsigned>(block_size), dynamic_shared);
    return cudaSuccess;
  });
}
