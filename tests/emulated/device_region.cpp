#include "device_region.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace emulated {
namespace {

constexpr size_t page = 4096, reserved = size_t{1} << 37;

}  // namespace

DeviceRegion::DeviceRegion()
    : begin_(static_cast<char*>(
          mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (begin_ == MAP_FAILED) throw std::bad_alloc();
}

void* DeviceRegion::allocate(size_t bytes) {
  const size_t size = (bytes + page - 1) / page * page;
  size_t at = end_;
  if (const auto found = free_.find(size); found != free_.end()) {
    at = found->second;
    free_.erase(found);
  } else {
    if (size > reserved - end_) return nullptr;
    end_ += size;
    if (opened_ > 0 && mprotect(begin_ + at, size, PROT_READ | PROT_WRITE) != 0) return nullptr;
  }
  used_[at] = size;
  return begin_ + at;
}

void DeviceRegion::release(void* block) {
  const auto it = used_.find(static_cast<size_t>(static_cast<char*>(block) - begin_));
  free_.emplace(it->second, it->first);
  // The pages go back; nobody has to see what was in them.
  madvise(block, it->second, MADV_DONTNEED);
  used_.erase(it);
}

void DeviceRegion::open(int by) {
  const bool before = opened_ > 0;
  opened_ += by;
  if (before != (opened_ > 0) && end_ > 0)
    mprotect(begin_, end_, opened_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
}

}  // namespace emulated
