// A caching allocator for nodes, tensors and lists of the tree.
//
// Freed small blocks are kept in lists of the thread that freed them, at most 128 KiB of each size, and else
// in lists shared by all threads, as larger ones are.
#pragma once
#include <cstddef>
#include <cstdint>

namespace espalier {

/// A block of at least `bytes`, aligned to 64. Throws OutOfMemory.
void* pool_allocate(size_t bytes);
/// Gives back a block that was allocated with the same `bytes`.
void pool_free(void* block, size_t bytes) noexcept;
/// The bytes of large blocks that are cached, and returning them to the system.
int64_t pool_cached_bytes();
void pool_release_cached();

/// For standard containers.
template <class T>
struct PoolAllocator {
  using value_type = T;
  PoolAllocator() = default;
  template <class U>
  PoolAllocator(const PoolAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(pool_allocate(n * sizeof(T))); }
  void deallocate(T* p, size_t n) noexcept { pool_free(p, n * sizeof(T)); }
  friend bool operator==(const PoolAllocator&, const PoolAllocator&) { return true; }
};

}  // namespace espalier
