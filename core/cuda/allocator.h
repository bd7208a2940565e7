// The caching allocator of one GPU.
//
// Blocks are ordered by the device's eager stream: a freed block can be reused at once, since later work of
// the eager stream runs after earlier work. A thread whose current stream is another one (StreamScope) may
// allocate and free, too; each such call makes one stream wait for the work queued on the other. Code under
// capture must not allocate; plans use memory allocated before. Other threads may allocate meanwhile, so
// captures begin with cudaStreamCaptureModeThreadLocal.
#pragma once
#include <mutex>
#include <optional>
#include <set>

#include "espalier/core/cuda/runtime.h"

namespace espalier::cu {

/// A part of a segment allocated from the driver, with its neighbours in address order.
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
  /// Frees a block allocated with that `bytes`. It makes no driver call while the current stream is the eager
  /// one: static tensors may outlive the driver.
  void release(MemoryBlock* block, size_t bytes) noexcept;

  MemoryStats stats() const;
  void reset_peak();
  /// Waits for the eager stream and returns unused segments to the driver.
  void release_cached();
  /// The most bytes to hold of the driver's, used or cached.
  void set_limit(int64_t bytes);

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
  /// A segment, or null if the limit or the driver refuses it.
  void* ask_driver(size_t bytes);
  /// Splits off the rest beyond `bytes` if it is large enough to be useful.
  void split(MemoryBlock* block, size_t bytes);
  MemoryBlock* joined(MemoryBlock* first, MemoryBlock* second);
  void free_segments(FreeBlocks& blocks);
  void free_unused_segments();
  [[noreturn]] void throw_out_of_memory(size_t asked) const;
  /// Makes one stream wait for the work queued on another.
  void order(cudaStream_t first, cudaStream_t then);

  const int device_;
  mutable std::mutex mutex_;
  FreeBlocks free_small_, free_large_;
  std::optional<Event> between_;  // what `order` records
  int64_t live_ = 0, peak_ = 0, cached_ = 0, allocations_ = 0;
  int64_t segments_ = 0, limit_ = no_memory_limit;  // bytes of all segments, and the most they may have
};

}  // namespace espalier::cu
