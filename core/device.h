// Devices, and the seam between Espalier and what a device offers.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

namespace espalier {

class BindContext;
class BoundKernel;
class Op;
struct KernelCall;

enum class DeviceType : uint8_t { cpu, cuda };

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  /// "cpu:0", "cuda:1"
  std::string str() const;
  friend auto operator<=>(const Device&, const Device&) = default;
};

std::ostream& operator<<(std::ostream& out, const Device& device);

/// The host's processors. Several indices name several logical devices over the same memory.
Device cpu(int index = 0);
/// The GPU of that number; naming it is free, using it throws DeviceError where there is none.
Device gpu(int index = 0);
/// Every GPU that can be used; empty on a machine without one.
std::vector<Device> all_gpus();

/// The memory limit of a device that has none.
inline constexpr int64_t no_memory_limit = INT64_MAX;

/// What tensors of a device occupy, in bytes.
struct MemoryStats {
  int64_t live_bytes = 0;    ///< held by tensors now
  int64_t peak_bytes = 0;    ///< the most held at once since the start or `reset_peak_memory`
  int64_t cached_bytes = 0;  ///< freed by tensors and kept for the next ones
  int64_t allocations = 0;   ///< buffers asked for so far
  int64_t limit_bytes = no_memory_limit;
};
MemoryStats memory_stats(Device device = cpu());
void reset_peak_memory(Device device = cpu());
/// Gives cached memory back to the system.
void release_cached_memory(Device device = cpu());
/// Limits the bytes that tensors of a device hold, on a GPU together with cached memory, which is given back
/// to stay below the limit. A tensor that would exceed it throws OutOfMemory; those that exist are kept, so
/// the limit may be below what they hold. `no_memory_limit` removes it. All indices of the CPU share one
/// limit. Throws Error for a negative number, DeviceError where there is no such device.
void set_memory_limit(Device device, int64_t bytes,
                      std::source_location where = std::source_location::current());

/// Waits until all work queued on a device is done. Throws the errors which its kernels recorded: IndexError
/// for indices outside their axis, DeviceError for the rest. Returns at once for a CPU.
void synchronize(Device device);

/// How many threads kernels of the calling thread may use, 1 to 4096 (Error). The default is OpenMP's.
void set_num_threads(int threads, std::source_location where = std::source_location::current());
int num_threads();

struct Storage;
class Tensor;

/// The services of a device for tensors and evaluators: memory, copies, running a kernel.
class Backend {
 public:
  virtual ~Backend() = default;
  /// A buffer of that many bytes, aligned to 64. Throws OutOfMemory.
  virtual Storage* allocate(size_t bytes, Device device) = 0;
  virtual void copy_to_host(void* to, const void* from, size_t bytes, Device device) = 0;
  virtual void copy_from_host(void* to, const void* from, size_t bytes, Device device) = 0;
  /// Copies all elements of a tensor to one of the same shape and dtype, both on one device and strided as
  /// they are.
  virtual void copy(const Tensor& from, Tensor& to) = 0;
  /// Sets the bytes of a contiguous tensor to 0.
  virtual void zero(Tensor& to) = 0;
  virtual void run(const Op& op, const KernelCall& call) = 0;
  /// A kernel that runs this call again and again. Throws UnsupportedError naming op, dtype and device.
  virtual std::unique_ptr<BoundKernel> bind(const Op& op, const KernelCall& call,
                                            const BindContext& context) = 0;
  /// Waits for all kernels on the device and throws the errors they recorded.
  virtual void synchronize(Device device) = 0;
  virtual MemoryStats memory_stats(Device device) = 0;
  virtual void reset_peak_memory(Device device) = 0;
  virtual void release_cached_memory(Device device) = 0;
  virtual void set_memory_limit(Device device, int64_t bytes) = 0;
  /// The stream in which the calling thread's kernels run, as the device's own type; null where there are no
  /// streams.
  virtual void* stream(Device) { return nullptr; }
};

/// The backend of a device. Throws DeviceError saying why when there is none.
Backend& backend(Device device);
Backend& cpu_backend();

}  // namespace espalier
