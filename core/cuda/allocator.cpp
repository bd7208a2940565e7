#include "espalier/core/cuda/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "espalier/core/error.h"

namespace espalier::cu {

namespace {

constexpr size_t unit = 512;
constexpr size_t mebibyte = size_t{1} << 20;
constexpr size_t largest_small = mebibyte;       // what comes from segments for small requests
constexpr size_t small_segment = 2 * mebibyte;   // one holds many small blocks
constexpr size_t large_segment = 20 * mebibyte;  // one holds several requests of up to half its size

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

/// The size of the driver allocation for a block of that size.
size_t segment_bytes(size_t bytes, bool small) {
  if (small) return small_segment;
  return bytes <= large_segment / 2 ? large_segment : rounded(bytes, 2 * mebibyte);
}

bool captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking whether a stream is captured");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

MemoryBlock* DeviceMemory::allocate(size_t bytes) {
  if (bytes > (size_t{1} << 46)) throw OutOfMemory(fmt::format("{} bytes are more than any GPU has", bytes));
  const size_t wanted = rounded(std::max<size_t>(bytes, 1), unit);
  const bool small = wanted <= largest_small;
  const cudaStream_t other = stream_instead_of_eager(device_);
  if (other && captured(other))
    throw Error("memory was asked for during capture: a kernel that allocates cannot be part of a plan");
  const std::lock_guard lock(mutex_);
  if (live_ > limit_ - static_cast<int64_t>(bytes) && bytes > 0) throw_out_of_memory(bytes);
  MemoryBlock* block = take_cached(wanted, small);
  if (!block) block = new_segment(wanted, small, bytes);
  split(block, wanted);
  cached_ -= static_cast<int64_t>(block->bytes);
  live_ += static_cast<int64_t>(bytes);
  peak_ = std::max(peak_, live_);
  ++allocations_;
  if (other) {
    const DeviceScope scope(device_);
    order(eager_stream(), other);
  }
  return block;
}

void DeviceMemory::release(MemoryBlock* block, size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  live_ -= static_cast<int64_t>(bytes);
  try {
    // Captured work runs later, on memory of its own; nothing to wait for.
    if (const cudaStream_t other = stream_instead_of_eager(device_); other && !captured(other)) {
      const DeviceScope scope(device_);
      order(other, eager_stream());
    }
    free_blocks(block->small).insert(block);
  } catch (const std::exception&) {
    return;  // a broken device, or no memory on the host: the block is not used again
  }
  cached_ += static_cast<int64_t>(block->bytes);
  block->free = true;
  if (block->before && block->before->free) block = joined(block->before, block);
  if (block->after && block->after->free) joined(block, block->after);
}

MemoryStats DeviceMemory::stats() const {
  const std::lock_guard lock(mutex_);
  return {live_, peak_, cached_, allocations_, limit_};
}

void DeviceMemory::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = live_;
}

void DeviceMemory::release_cached() {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(device_);
  free_unused_segments();
}

void DeviceMemory::set_limit(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
  const DeviceScope scope(device_);
  if (segments_ > limit_) free_unused_segments();
}

MemoryBlock* DeviceMemory::take_cached(size_t bytes, bool small) {
  FreeBlocks& blocks = free_blocks(small);
  MemoryBlock least;
  least.bytes = bytes;
  const auto fit = blocks.lower_bound(&least);
  if (fit == blocks.end()) return nullptr;
  MemoryBlock* block = *fit;
  blocks.erase(fit);
  block->free = false;
  return block;
}

MemoryBlock* DeviceMemory::new_segment(size_t bytes, bool small, size_t asked) {
  const DeviceScope scope(device_);
  auto block = std::make_unique<MemoryBlock>();
  size_t size = segment_bytes(bytes, small);
  void* data = ask_driver(size);
  if (!data) {
    free_unused_segments();
    data = ask_driver(size);
  }
  if (!data) data = ask_driver(size = bytes);
  if (!data) throw_out_of_memory(asked);
  block->data = static_cast<char*>(data);
  block->bytes = size;
  block->small = small;
  cached_ += static_cast<int64_t>(size);
  return block.release();
}

void* DeviceMemory::ask_driver(size_t bytes) {
  if (bytes > static_cast<size_t>(limit_) || segments_ > limit_ - static_cast<int64_t>(bytes)) return nullptr;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  check(status, "allocating device memory");
  segments_ += static_cast<int64_t>(bytes);
  return data;
}

void DeviceMemory::split(MemoryBlock* block, size_t bytes) {
  const size_t rest = block->bytes - bytes;
  if (rest < (block->small ? unit : largest_small + 1)) return;
  auto* tail = new MemoryBlock{block->data + bytes, rest, block, block->after, block->small, true};
  if (tail->after) tail->after->before = tail;
  block->after = tail;
  block->bytes = bytes;
  free_blocks(tail->small).insert(tail);
}

MemoryBlock* DeviceMemory::joined(MemoryBlock* first, MemoryBlock* second) {
  // The entry of the one is given to both, so that nothing is allocated.
  FreeBlocks& blocks = free_blocks(first->small);
  blocks.erase(second);
  auto entry = blocks.extract(first);
  first->bytes += second->bytes;
  first->after = second->after;
  if (first->after) first->after->before = first;
  blocks.insert(std::move(entry));
  delete second;
  return first;
}

void DeviceMemory::free_segments(FreeBlocks& blocks) {
  for (auto at = blocks.begin(); at != blocks.end();) {
    MemoryBlock* block = *at;
    if (block->before || block->after) {
      ++at;
      continue;
    }
    check(cudaFree(block->data), "giving memory back to a device");
    cached_ -= static_cast<int64_t>(block->bytes);
    segments_ -= static_cast<int64_t>(block->bytes);
    at = blocks.erase(at);
    delete block;
  }
}

void DeviceMemory::free_unused_segments() {
  // All blocks are in the order of the eager stream. Waiting for the device would disturb captures.
  check(cudaStreamSynchronize(eager_stream()), "waiting for a stream");
  free_segments(free_small_);
  free_segments(free_large_);
}

void DeviceMemory::throw_out_of_memory(size_t asked) const {
  if (std::max(segments_, live_) > limit_ - static_cast<int64_t>(asked))
    throw OutOfMemory(
        fmt::format("{} bytes would exceed cuda:{}'s memory limit of {} bytes: tensors hold {}, and {} more "
                    "are cached in parts too small",
                    asked, device_, limit_, live_, cached_));
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking a device for its free memory");
  throw OutOfMemory(
      fmt::format("cuda:{} has no {} bytes left: tensors hold {}, {} more are cached in parts too small, and "
                  "{} of {} are free on the device",
                  device_, asked, live_, cached_, free, total));
}

void DeviceMemory::order(cudaStream_t first, cudaStream_t then) {
  if (!between_) between_.emplace();
  between_->record(first);
  check(cudaStreamWaitEvent(then, between_->get(), 0), "letting a stream wait for another");
}

}  // namespace espalier::cu
