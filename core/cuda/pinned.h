// Page-locked host memory, for asynchronous copies.
#pragma once
#include <cstddef>
#include <utility>

namespace espalier::cu {

/// A buffer for batches; every device may copy from it. The caller must wait for such a copy (an Event)
/// before writing the buffer again.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  /// Throws OutOfMemory.
  explicit PinnedBuffer(size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        device_(other.device_) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_, other.device_);
    return *this;
  }

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  int device_ = 0;  // the current one when it was made
};

}  // namespace espalier::cu
