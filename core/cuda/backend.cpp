// The CUDA backend: kernels and copies are queued on a device's stream, memory comes from its cache.
#include "espalier/core/cuda/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <source_location>
#include <string>

#include "espalier/core/backends.h"
#include "espalier/core/cpu/block_pool.h"
#include "espalier/core/cuda/allocator.h"
#include "espalier/core/cuda/copy.h"
#include "espalier/core/cuda/profiler_range.h"
#include "espalier/core/cuda/runtime.h"
#include "espalier/core/cuda/value_errors.h"
#include "espalier/core/error.h"
#include "espalier/core/op.h"

namespace espalier {

namespace {

using cu::check;
using cu::DeviceScope;

/// The number of GPUs, or the reason why there is none.
struct Found {
  int count = 0;
  std::string why;

  Found() {
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess) {
      if (count == 0) why = "there is no GPU";
      count = std::min(count, cu::most_devices);
      return;
    }
    (void)cudaGetLastError();
    count = 0;
    int driver = 0;
    const bool has_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
    const char* reason = "the NVIDIA driver does not answer";
    if (status == cudaErrorNoDevice)
      reason = "the NVIDIA driver sees no GPU";
    else if (status == cudaErrorInsufficientDriver)
      reason = has_driver ? "the NVIDIA driver is too old" : "no NVIDIA driver was found";
    why = fmt::format("{} ({})", reason, cu::describe(status));
  }
};
const Found& found() {
  static const Found* const result = new Found;
  return *result;
}

[[noreturn]] void cannot_be_used(int device, std::string_view why) {
  throw DeviceError(fmt::format("cuda:{} cannot be used: {}", device, why));
}

int architecture_of(int device) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "asking a device for its architecture");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "asking a device for its architecture");
  return major * 10 + minor;
}

/// The op last queued on a device, for errors reported later.
class LastOp {
 public:
  void set(std::string_view name, const CallSite* where) {
    const std::lock_guard lock(mutex_);
    const size_t length = std::min(name.size(), sizeof(name_) - 1);
    std::memcpy(name_, name.data(), length);
    name_[length] = 0;
    where_ = where ? *where : CallSite();
  }
  /// "matmul (net.cpp:12)"
  std::string str() const {
    const std::lock_guard lock(mutex_);
    if (!name_[0]) return "none";
    if (!where_.line()) return name_;
    return fmt::format("{} ({}:{})", name_, where_.file_name(), where_.line());
  }

 private:
  mutable std::mutex mutex_;
  char name_[48] = {};
  CallSite where_;
};

/// The backend's state for one device.
struct Gpu {
  explicit Gpu(int index) : index(index), memory(index) {}

  /// Throws DeviceError saying what failed, and which op came last.
  void check_work(cudaError_t status) const {
    if (status == cudaSuccess) return;
    (void)cudaGetLastError();
    const char* advice =
        synchronous() ? "" : "; with ESPALIER_CUDA_SYNC=1 in the environment the op that failed is named";
    throw DeviceError(fmt::format("cuda:{}: a kernel or copy failed ({}); the last op launched was {}{}",
                                  index, cu::describe(status), last_op.str(), advice));
  }

  /// Whether each op is waited for, so that errors name the right one.
  static bool synchronous() {
    static const bool wanted = [] {
      const char* value = std::getenv("ESPALIER_CUDA_SYNC");
      return value && std::strcmp(value, "0") != 0 && *value;
    }();
    return wanted;
  }

  const int index;
  cu::DeviceMemory memory;
  LastOp last_op;
  bool reads_pageable = false;  ///< copies from ordinary host memory may go on after the call
};

/// The devices that have been used, by number.
std::atomic<Gpu*> gpus[cu::most_devices];

Gpu& first_use(int index) {
  if (index >= found().count) {
    const int count = found().count;
    if (count == 0) cannot_be_used(index, found().why);
    cannot_be_used(index, count == 1 ? "there is 1 GPU" : fmt::format("there are {} GPUs", count));
  }
  static std::mutex* const mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  if (Gpu* gpu = gpus[index].load()) return *gpu;
  const DeviceScope scope(index);
  if (const cudaError_t status = cu::try_kernels(); status != cudaSuccess) {
    (void)cudaGetLastError();
    cannot_be_used(index,
                   fmt::format("its architecture is {}, and this build's kernels are for {} and what can run "
                               "them ({})",
                               architecture_of(index), cu::lowest_architecture(), cu::describe(status)));
  }
  Gpu* gpu = new Gpu(index);  // outlives every tensor, static ones too
  int pageable = 0;
  check(cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, index),
        "asking a device for its properties");
  gpu->reads_pageable = pageable != 0;
  gpus[index].store(gpu, std::memory_order_release);
  return *gpu;
}

Gpu& gpu_at(Device device) {
  if (device.index < cu::most_devices)
    if (Gpu* gpu = gpus[device.index].load(std::memory_order_acquire)) return *gpu;
  return first_use(device.index);
}

/// A Storage, and the block it holds.
struct CudaStorage : Storage {
  cu::MemoryBlock* block = nullptr;
};

class CudaBackend : public Backend {
 public:
  Storage* allocate(size_t bytes, Device device) override {
    auto* storage = new (pool_allocate(sizeof(CudaStorage))) CudaStorage;
    try {
      storage->block = gpu_at(device).memory.allocate(bytes);
    } catch (...) {
      destroy(storage);
      throw;
    }
    storage->data = storage->block->data;
    storage->bytes = bytes;
    storage->device = device;
    storage->release = release;
    return storage;
  }

  void copy_to_host(void* to, const void* from, size_t bytes, Device device) override {
    const Gpu& gpu = gpu_at(device);
    const DeviceScope scope(device.index);
    const cudaStream_t stream = cu::current_stream();
    gpu.check_work(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
    gpu.check_work(cudaStreamSynchronize(stream));
    cu::throw_recorded_value();
  }

  void copy_from_host(void* to, const void* from, size_t bytes, Device device) override {
    const Gpu& gpu = gpu_at(device);
    const DeviceScope scope(device.index);
    if (bytes <= cu::most_bytes_put) return cu::put_bytes(to, from, bytes);  // numbers in expressions
    const cudaStream_t stream = cu::current_stream();
    gpu.check_work(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
    // Ordinary memory has been read when the call returns, unless the device reads it by itself.
    cudaPointerAttributes attributes{};
    if (gpu.reads_pageable || (cudaPointerGetAttributes(&attributes, from) == cudaSuccess &&
                               attributes.type != cudaMemoryTypeUnregistered))
      gpu.check_work(cudaStreamSynchronize(stream));
  }

  void copy(const Tensor& from, Tensor& to) override {
    (void)gpu_at(to.device());
    const DeviceScope scope(to.device().index);
    cu::copy_strided(from, to);
  }

  void zero(Tensor& to) override {
    if (!to.bytes()) return;
    const Gpu& gpu = gpu_at(to.device());
    const DeviceScope scope(to.device().index);
    gpu.check_work(cudaMemsetAsync(to.address(), 0, to.bytes(), cu::current_stream()));
  }

  void run(const Op& op, const KernelCall& call) override {
    const Device device = call.outputs[0]->device();
    Gpu& gpu = gpu_at(device);
    const DeviceScope scope(device.index);
    gpu.last_op.set(op.name(), call.where);
    const cu::ProfilerRange range(op.name());
    // Its scratch returns to the cache before the kernel has run; the next user runs after the kernel.
    bind(op, call, {})->run(call.random);
    if (!Gpu::synchronous()) return;
    gpu.check_work(cudaStreamSynchronize(cu::current_stream()));
    cu::throw_recorded_value();
  }

  std::unique_ptr<BoundKernel> bind(const Op& op, const KernelCall& call,
                                    const BindContext& context) override {
    return backends().at(DeviceType::cuda).kernels.bind(op, call, context);
  }

  void synchronize(Device device) override {
    const Gpu& gpu = gpu_at(device);
    const DeviceScope scope(device.index);
    gpu.check_work(cu::synchronize_device());
    cu::throw_recorded_value();
  }

  MemoryStats memory_stats(Device device) override { return gpu_at(device).memory.stats(); }
  void reset_peak_memory(Device device) override { gpu_at(device).memory.reset_peak(); }
  void release_cached_memory(Device device) override { gpu_at(device).memory.release_cached(); }
  void set_memory_limit(Device device, int64_t bytes) override { gpu_at(device).memory.set_limit(bytes); }
  void* stream(Device device) override {
    (void)gpu_at(device);
    const DeviceScope scope(device.index);
    return cu::current_stream();
  }

 private:
  static void destroy(CudaStorage* storage) {
    storage->~CudaStorage();
    pool_free(storage, sizeof(CudaStorage));
  }
  static void release(Storage* base) {
    auto* storage = static_cast<CudaStorage*>(base);
    gpus[storage->device.index]
        .load(std::memory_order_acquire)
        ->memory.release(storage->block, storage->bytes);
    destroy(storage);
  }
};

}  // namespace

std::vector<Device> cuda_devices() {
  std::vector<Device> devices;
  for (int i = 0; i < found().count; ++i)
    if (architecture_of(i) >= cu::lowest_architecture()) devices.push_back(gpu(i));
  return devices;
}

Backend& cuda_backend(Device device) {
  (void)gpu_at(device);
  static CudaBackend* const backend = new CudaBackend;
  return *backend;
}

}  // namespace espalier
