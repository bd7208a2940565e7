// The memory of one GPU: blocks which tensors give back are kept for the next ones.
//
// All blocks belong to the order of the device's eager stream: a block is handed out as soon as it is given
// back, since what the eager stream does with it from then on comes after what it did before. A thread whose
// current stream is another one (StreamScope) may allocate and give back too; each such call makes one
// stream wait for what the other has been asked so far. What is being captured must not allocate: plans use
// memory that was allocated before. Since another thread may allocate meanwhile, a capture is begun as
// cudaStreamCaptureModeThreadLocal.
#pragma once
#include <mutex>
#include <optional>
#include <set>

#include "espalier/core/cuda/runtime.h"

namespace espalier::cu {

/// A part of a segment, which is what the driver gave; its neighbours lie before and after it.
struct MemoryBlock {
  char* data = nullptr;
  size_t bytes = 0;
  MemoryBlock* before = nullptr;
  MemoryBlock* after = nullptr;
  bool small = false;  ///< in a segment for small requests
  bool free = false;
};

class DeviceMemory {
 public:
  explicit DeviceMemory(int device) : device_(device) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// A block of at least `bytes`, aligned to 256. Throws OutOfMemory, or Error during capture.
  MemoryBlock* allocate(size_t bytes);
  /// Takes back what was allocated with that `bytes`. It asks nothing of the driver while the current stream
  /// is the eager one: static tensors may end after the driver has.
  void release(MemoryBlock* block, size_t bytes) noexcept;

  MemoryStats stats() const;
  void reset_peak();
  /// Waits for the device, and gives back to it what no tensor uses.
  void release_cached();

 private:
  struct BySize {
    bool operator()(const MemoryBlock* a, const MemoryBlock* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
    }
  };
  using FreeBlocks = std::set<MemoryBlock*, BySize>;

  FreeBlocks& free_blocks(bool small) { return small ? free_small_ : free_large_; }
  MemoryBlock* take_cached(size_t bytes, bool small);
  MemoryBlock* new_segment(size_t bytes, bool small, size_t asked);
  void* ask_driver(size_t bytes);
  /// Cuts off what is more than `bytes`, if it is worth being kept apart.
  void split(MemoryBlock* block, size_t bytes);
  MemoryBlock* joined(MemoryBlock* first, MemoryBlock* second);
  void free_segments(FreeBlocks& blocks);
  void free_unused_segments();
  [[noreturn]] void throw_out_of_memory(size_t asked) const;
  /// Lets one stream wait for what another has been asked so far.
  void order(cudaStream_t first, cudaStream_t then);

  const int device_;
  mutable std::mutex mutex_;
  FreeBlocks free_small_, free_large_;
  std::optional<Event> between_;  // what `order` records
  int64_t live_ = 0, peak_ = 0, cached_ = 0, allocations_ = 0;
};

}  // namespace espalier::cu
