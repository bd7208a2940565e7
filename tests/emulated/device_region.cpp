#include "device_region.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

namespace emulated {
namespace {

constexpr size_t page = 4096, reserved = size_t{1} << 37;

/// The number of regions that this thread has open.
thread_local int opened = 0;

}  // namespace

DeviceRegion::DeviceRegion()
    : begin_(static_cast<char*>(
          mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (begin_ == MAP_FAILED) throw std::bad_alloc();
  key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  const char* wanted = std::getenv("ESPALIER_EMULATED_GUARD");
  pages_ = key_ < 0 && wanted != nullptr && *wanted == '1';
}

bool DeviceRegion::is_guarded() const { return key_ >= 0 || pages_; }

void* DeviceRegion::allocate(size_t bytes) {
  const size_t size = (bytes + page - 1) / page * page;
  size_t at = end_;
  if (const auto found = free_.find(size); found != free_.end()) {
    at = found->second;
    free_.erase(found);
  } else {
    if (size > reserved - end_) return nullptr;
    constexpr int access = PROT_READ | PROT_WRITE;
    if ((key_ < 0 ? mprotect(begin_ + at, size, access) : pkey_mprotect(begin_ + at, size, access, key_)) !=
        0)
      return nullptr;
    end_ += size;
  }
  used_[at] = size;
  return begin_ + at;
}

void DeviceRegion::release(void* block) {
  const auto it = used_.find(static_cast<size_t>(static_cast<char*>(block) - begin_));
  free_.emplace(it->second, it->first);
  constexpr size_t large = size_t{1} << 20;  // smaller blocks are not returned to the system
  if (it->second >= large) madvise(block, it->second, MADV_DONTNEED);
  used_.erase(it);
}

void DeviceRegion::open(int by) {
  const bool before = opened > 0;
  opened += by;
  if (before == (opened > 0)) return;
  if (key_ >= 0) pkey_set(key_, opened > 0 ? 0 : PKEY_DISABLE_ACCESS);
  if (!pages_) return;
  // Page protection holds for all threads, and several may have the region open.
  const bool none_before = open_threads_ == 0;
  open_threads_ += opened > 0 ? 1 : -1;
  if (end_ > 0 && none_before != (open_threads_ == 0))
    mprotect(begin_, end_, open_threads_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
}

}  // namespace emulated
