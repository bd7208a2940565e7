// A reference-counted buffer on a device.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "espalier/core/count.h"
#include "espalier/core/device.h"

namespace espalier {

/// Buffers, and values in an arena, begin at multiples of this many bytes: a cache line and an AVX-512
/// vector.
inline constexpr int64_t buffer_alignment = 64;
/// The bytes that so many occupy in an arena.
constexpr int64_t aligned_bytes(int64_t bytes) {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

struct Storage {
  std::atomic<int64_t> references{0};
  void* data = nullptr;
  size_t bytes = 0;
  Device device;
  void (*release)(Storage*) = nullptr;  ///< called when the last reference goes
  bool foreign = false;                 ///< the memory has other owners, so it is never unique
};

/// Shares a Storage.
class StoragePtr {
 public:
  StoragePtr() = default;
  explicit StoragePtr(Storage* storage) : storage_(storage) { retain(); }
  StoragePtr(const StoragePtr& other) : storage_(other.storage_) { retain(); }
  StoragePtr(StoragePtr&& other) noexcept : storage_(std::exchange(other.storage_, nullptr)) {}
  StoragePtr& operator=(StoragePtr other) noexcept {
    std::swap(storage_, other.storage_);
    return *this;
  }
  ~StoragePtr() {
    if (storage_ && count_down(storage_->references) == 1) storage_->release(storage_);
  }

  Storage* get() const { return storage_; }
  Storage* operator->() const { return storage_; }
  explicit operator bool() const { return storage_ != nullptr; }
  /// Whether this is the only reference to the buffer, so that it may be used for something else.
  bool unique() const {
    return storage_ && !storage_->foreign && storage_->references.load(std::memory_order_acquire) == 1;
  }

 private:
  void retain() {
    if (storage_) count_up(storage_->references);
  }
  Storage* storage_ = nullptr;
};

}  // namespace espalier
