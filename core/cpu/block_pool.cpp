#include "espalier/core/cpu/block_pool.h"

#include <fmt/format.h>

#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/sanitizers.h"
#include "espalier/core/storage.h"

namespace espalier {

namespace {

constexpr size_t unit = buffer_alignment;
constexpr size_t largest_small_block = 1024;
constexpr size_t classes = largest_small_block / unit;
constexpr size_t slab_bytes = size_t{64} << 10;

struct FreeBlock {
  FreeBlock* next;
};

/// The lists of threads that have ended, for reuse by the others.
struct SharedLists {
  std::mutex mutex;
  FreeBlock* lists[classes] = {};
};
SharedLists& shared_lists() {
  static SharedLists* lists = new SharedLists;  // outlives every thread
  return *lists;
}

struct ThreadLists {
  FreeBlock* lists[classes] = {};

  ~ThreadLists() {
    SharedLists& shared = shared_lists();
    const std::lock_guard lock(shared.mutex);
    for (size_t c = 0; c < classes; ++c)
      while (FreeBlock* block = lists[c]) {
        lists[c] = block->next;
        block->next = shared.lists[c];
        shared.lists[c] = block;
      }
    ended = true;
  }
  bool ended = false;
};

thread_local ThreadLists thread_lists;

void refill(FreeBlock*& list, size_t c) {
  SharedLists& shared = shared_lists();
  const size_t size = (c + 1) * unit;
  const size_t count = slab_bytes / size;
  {
    // No more than a slab's worth: threads that refill at the same time share what there is.
    const std::lock_guard lock(shared.mutex);
    if ((list = shared.lists[c])) {
      FreeBlock* last = list;
      for (size_t i = 1; i < count && last->next; ++i) last = last->next;
      shared.lists[c] = std::exchange(last->next, nullptr);
      return;
    }
  }
  char* slab = static_cast<char*>(std::aligned_alloc(unit, count * size));
  if (!slab) throw OutOfMemory("the system has no memory left for a block of small objects");
  for (size_t i = count; i-- > 0;) {
    auto* block = reinterpret_cast<FreeBlock*>(slab + i * size);
    block->next = list;
    list = block;
  }
}

/// Sizes of large blocks: four steps to each power of two, so that at most a fifth is wasted.
struct SizeClass {
  size_t index, bytes;
};
SizeClass size_class(size_t bytes) {
  const int log = std::bit_width(bytes - 1) - 1;
  const size_t step = size_t{1} << (log - 2);
  const size_t quarter = (bytes - 1 - (size_t{1} << log)) / step;
  return {static_cast<size_t>(log) * 4 + quarter, (size_t{1} << log) + (quarter + 1) * step};
}

struct LargeBlocks {
  std::mutex mutex;
  std::vector<void*> free[64 * 4];
  int64_t bytes = 0;

  void release() {
    const std::lock_guard lock(mutex);
    for (auto& blocks : free) {
      for (void* block : blocks) std::free(block);
      blocks.clear();
    }
    bytes = 0;
  }
};
LargeBlocks& large_blocks() {
  static LargeBlocks* blocks = new LargeBlocks;  // outlives every thread
  return *blocks;
}

void* allocate_large(size_t bytes) {
  const SizeClass c = size_class(bytes);
  LargeBlocks& cache = large_blocks();
  {
    const std::lock_guard lock(cache.mutex);
    if (auto& blocks = cache.free[c.index]; !blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      cache.bytes -= static_cast<int64_t>(c.bytes);
      return block;
    }
  }
  void* block = std::aligned_alloc(unit, c.bytes);
  if (!block) {
    cache.release();
    block = std::aligned_alloc(unit, c.bytes);
  }
  if (!block) throw OutOfMemory(fmt::format("the system has no {} bytes left", c.bytes));
  return block;
}

void free_large(void* block, size_t bytes) noexcept {
  const SizeClass c = size_class(bytes);
  LargeBlocks& cache = large_blocks();
  const std::lock_guard lock(cache.mutex);
  try {
    cache.free[c.index].push_back(block);
    cache.bytes += static_cast<int64_t>(c.bytes);
  } catch (const std::bad_alloc&) {
    std::free(block);
  }
}

}  // namespace

int64_t pool_cached_bytes() {
  const std::lock_guard lock(large_blocks().mutex);
  return large_blocks().bytes;
}
void pool_release_cached() { large_blocks().release(); }

// A pool would hide uses after free from a sanitizer.
constexpr bool pools = !ESPALIER_ADDRESS_SANITIZER && !ESPALIER_THREAD_SANITIZER;

void* pool_allocate(size_t bytes) {
  if (bytes > (size_t{1} << 46))
    throw OutOfMemory(fmt::format("{} bytes are more than any machine has", bytes));
  if (!pools) {
    if (void* block = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit + (bytes ? 0 : unit)))
      return block;
    throw OutOfMemory(fmt::format("the system has no {} bytes left", bytes));
  }
  if (bytes > largest_small_block) return allocate_large(bytes);
  const size_t c = bytes ? (bytes - 1) / unit : 0;
  FreeBlock*& list = thread_lists.lists[c];
  if (!list) [[unlikely]]
    refill(list, c);
  FreeBlock* block = list;
  list = block->next;
  return block;
}

void pool_free(void* memory, size_t bytes) noexcept {
  if (!pools) return std::free(memory);
  if (bytes > largest_small_block) return free_large(memory, bytes);
  const size_t c = bytes ? (bytes - 1) / unit : 0;
  auto* block = static_cast<FreeBlock*>(memory);
  if (thread_lists.ended) [[unlikely]] {
    SharedLists& shared = shared_lists();
    const std::lock_guard lock(shared.mutex);
    block->next = shared.lists[c];
    shared.lists[c] = block;
    return;
  }
  block->next = thread_lists.lists[c];
  thread_lists.lists[c] = block;
}

}  // namespace espalier
