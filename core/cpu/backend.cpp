// The CPU backend: a caching allocator with counters, and kernels that run as they are called.
#include <fmt/format.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <atomic>
#include <cstdint>
#include <cstring>

#include "espalier/core/bind_context.h"
#include "espalier/core/cpu/block_pool.h"
#include "espalier/core/cpu/strided_copy.h"
#include "espalier/core/cpu/widen.h"
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/core/op.h"
#include "espalier/core/storage.h"

namespace espalier {

namespace {

constexpr size_t header = buffer_alignment;  // a Storage stands in front of its bytes, in one block
static_assert(sizeof(Storage) <= header);

class CpuBackend : public Backend {
 public:
  Storage* allocate(size_t bytes, Device device) override {
    if (bytes > SIZE_MAX - header)
      throw OutOfMemory(fmt::format("{} bytes are more than any machine has", bytes));
    const int64_t live = reserve(static_cast<int64_t>(bytes));
    void* block = nullptr;
    try {
      block = pool_allocate(bytes + header);
    } catch (...) {
      count_down(live_, static_cast<int64_t>(bytes));
      throw;
    }
    count(live);
    auto* storage = new (block) Storage;
    storage->data = static_cast<char*>(block) + header;
    storage->bytes = bytes;
    storage->device = device;
    storage->release = release;
    return storage;
  }

  void copy_to_host(void* to, const void* from, size_t bytes, Device) override {
    std::memcpy(to, from, bytes);
  }
  void copy_from_host(void* to, const void* from, size_t bytes, Device) override {
    std::memcpy(to, from, bytes);
  }
  void copy(const Tensor& from, Tensor& to) override {
    const bool dense = from.contiguous() && to.contiguous();
    if (dense ? from.bytes() != to.bytes() : from.dtype() != to.dtype() || !(from.shape() == to.shape()))
      throw ShapeError(fmt::format("copy: {} {} into {} {}", name(from.dtype()), from.shape().str(),
                                   name(to.dtype()), to.shape().str()));
    if (dense) {
      if (from.bytes()) std::memcpy(to.address(), from.address(), from.bytes());
      return;
    }
    copy_strided(from, to);
  }
  void zero(Tensor& to) override {
    if (to.bytes()) std::memset(to.address(), 0, to.bytes());
  }
  void run(const Op& op, const KernelCall& call) override {
    if (needs_widening(op, call))
      run_widened(op, call);
    else
      op.run_cpu(call);
  }
  std::unique_ptr<BoundKernel> bind(const Op& op, const KernelCall& call,
                                    const BindContext& context) override {
    if (!needs_widening(op, call))
      if (auto kernel = op.bind_cpu(call, context)) return kernel;
    return bound([this, &op, call = KernelCall(call)](RandomStream random) mutable {
      call.random = random;
      run(op, call);
    });
  }
  void synchronize(Device) override {}

  MemoryStats memory_stats(Device) override {
    return {live_.load(), peak_.load(), pool_cached_bytes(), allocations_.load(), limit_.load()};
  }
  void reset_peak_memory(Device) override { peak_ = live_.load(); }

  void release_cached_memory(Device) override { pool_release_cached(); }
  void set_memory_limit(Device, int64_t bytes) override { limit_ = bytes; }

 private:
  static CpuBackend& self() { return static_cast<CpuBackend&>(cpu_backend()); }

  static void release(Storage* storage) {
    const size_t whole = storage->bytes + header;
    CpuBackend& backend = self();
    count_down(backend.live_, static_cast<int64_t>(storage->bytes));
    storage->~Storage();
    pool_free(storage, whole);
  }

  /// Adds to the bytes that tensors hold, and returns their sum. Throws OutOfMemory above the limit.
  int64_t reserve(int64_t bytes) {
    const int64_t live = count_up(live_, bytes) + bytes;
    if (const int64_t limit = limit_.load(std::memory_order_relaxed); live > limit && bytes > 0) {
      count_down(live_, bytes);
      throw OutOfMemory(
          fmt::format("{} bytes would exceed the CPU's memory limit of {} bytes: tensors hold {}", bytes,
                      limit, live - bytes));
    }
    return live;
  }

  void count(int64_t live) {
    count_up(allocations_);
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (live > peak && !peak_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
    }
  }

  std::atomic<int64_t> live_{0}, peak_{0}, allocations_{0}, limit_{no_memory_limit};
};

thread_local int threads_wanted = 0;

}  // namespace

Backend& cpu_backend() {
  static CpuBackend* backend = new CpuBackend;  // outlives every tensor, static ones too
  return *backend;
}

void set_num_threads(int threads, std::source_location where) {
  // A thread takes memory even if it never runs; when there is none, OpenMP ends the process.
  constexpr int most = 4096;
  located(where, [&] {
    if (threads < 1 || threads > most)
      throw Error(
          fmt::format("set_num_threads: {} is not a number of threads; there can be 1 to {}", threads, most));
  });
  threads_wanted = threads;
#ifdef _OPENMP
  omp_set_num_threads(threads);  // OpenBLAS and oneDNN ask the same runtime
#endif
}

int num_threads() {
#ifdef _OPENMP
  return threads_wanted ? threads_wanted : omp_get_max_threads();
#else
  return 1;
#endif
}

}  // namespace espalier
