#include "espalier/core/cpu/block_pool.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <array>
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
  // Of the first block of a list that no thread owns: the first of the next such list, and the blocks of this
  // one.
  FreeBlock* next_list;
  size_t count;
};
static_assert(sizeof(FreeBlock) <= unit);

struct FreeList {
  FreeBlock* first = nullptr;
  size_t count = 0;
};

constexpr size_t size_of_class(size_t c) { return (c + 1) * unit; }
/// A slab's worth, in blocks: the most that a list has.
constexpr auto longest_list = [] {
  std::array<size_t, classes> counts{};
  for (size_t c = 0; c < classes; ++c) counts[c] = slab_bytes / size_of_class(c);
  return counts;
}();

/// Lists that threads have given away, each as a whole: those of threads that have ended, and of threads that
/// free what others allocate.
class SharedLists {
 public:
  void give(size_t c, FreeList list) noexcept {
    if (!list.first) return;
    list.first->count = list.count;
    const std::lock_guard lock(mutex_);
    list.first->next_list = std::exchange(lists_[c], list.first);
  }
  /// An empty list if there is none.
  FreeList take(size_t c) noexcept {
    const std::lock_guard lock(mutex_);
    FreeBlock* const first = lists_[c];
    if (!first) return {};
    lists_[c] = first->next_list;
    return {first, first->count};
  }

 private:
  std::mutex mutex_;
  FreeBlock* lists_[classes] = {};
};
SharedLists& shared_lists() {
  static SharedLists* lists = new SharedLists;  // outlives every thread
  return *lists;
}

/// Of each size, a list that the thread works with, and one that is full or empty: a thread that allocates
/// and frees in turns exchanges them, and asks for the shared ones only after a slab's worth.
struct ThreadLists {
  enum class Phase : uint8_t { before, running, ended };

  FreeList lists[classes] = {}, spare[classes] = {};
  Phase phase = Phase::before;
};

/// Without a destructor: those of other objects of a thread that ends still free blocks, and compilers drop
/// what is written to an object that ends.
constinit thread_local ThreadLists thread_lists;

struct EndOfThread {
  ~EndOfThread() {
    for (size_t c = 0; c < classes; ++c) {
      shared_lists().give(c, std::exchange(thread_lists.lists[c], {}));
      shared_lists().give(c, std::exchange(thread_lists.spare[c], {}));
    }
    thread_lists.phase = ThreadLists::Phase::ended;
  }
};

/// For a thread whose lists are used for the first time.
void begin_thread() noexcept {
  [[maybe_unused]] static thread_local EndOfThread end;
  thread_lists.phase = ThreadLists::Phase::running;
}

void refill(size_t c) {
  if (thread_lists.phase == ThreadLists::Phase::before) begin_thread();
  FreeList& list = thread_lists.lists[c];
  list = std::exchange(thread_lists.spare[c], {});
  if (!list.first) list = shared_lists().take(c);
  if (list.first) return;
  const size_t size = size_of_class(c), count = longest_list[c];
  char* slab = static_cast<char*>(std::aligned_alloc(unit, count * size));
  if (!slab) throw OutOfMemory("the system has no memory left for a block of small objects");
  for (size_t i = count; i-- > 0;) {
    auto* block = reinterpret_cast<FreeBlock*>(slab + i * size);
    block->next = list.first;
    list.first = block;
  }
  list.count = count;
}

/// Makes room in the list of a size.
void put_aside(size_t c) noexcept {
  FreeList& spare = thread_lists.spare[c];
  shared_lists().give(c, spare);
  spare = std::exchange(thread_lists.lists[c], {});
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

/// A block of its class for `bytes` bytes; null if there is no memory. Linux maps the huge pages that they
/// fill by such where it is asked to: first uses fault less, and fewer addresses have to be translated.
void* new_large(size_t bytes, size_t class_bytes) {
#ifdef MADV_HUGEPAGE
  constexpr size_t huge_page = size_t{2} << 20;
  if (bytes >= 2 * huge_page) {
    void* block = std::aligned_alloc(huge_page, (class_bytes + huge_page - 1) / huge_page * huge_page);
    if (block) (void)madvise(block, bytes / huge_page * huge_page, MADV_HUGEPAGE);  // It may refuse.
    return block;
  }
#endif
  return std::aligned_alloc(unit, class_bytes);
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
  void* block = new_large(bytes, c.bytes);
  if (!block) {
    cache.release();
    block = new_large(bytes, c.bytes);
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
  FreeList& list = thread_lists.lists[c];
  if (!list.first) [[unlikely]] {
    refill(c);
    if (thread_lists.phase == ThreadLists::Phase::ended) {  // nothing will give the other blocks away
      const FreeList taken = std::exchange(list, {});
      shared_lists().give(c, {taken.first->next, taken.count - 1});
      return taken.first;
    }
  }
  FreeBlock* block = list.first;
  list.first = block->next;
  --list.count;
  return block;
}

void pool_free(void* memory, size_t bytes) noexcept {
  if (!pools) return std::free(memory);
  if (bytes > largest_small_block) return free_large(memory, bytes);
  const size_t c = bytes ? (bytes - 1) / unit : 0;
  auto* block = static_cast<FreeBlock*>(memory);
  if (thread_lists.phase != ThreadLists::Phase::running) [[unlikely]] {
    if (thread_lists.phase == ThreadLists::Phase::ended) {
      block->next = nullptr;
      shared_lists().give(c, {block, 1});
      return;
    }
    begin_thread();
  }
  FreeList& list = thread_lists.lists[c];
  if (list.count >= longest_list[c]) [[unlikely]]
    put_aside(c);
  block->next = list.first;
  list.first = block;
  ++list.count;
}

}  // namespace espalier
