// Counting that several threads may do at once, at the price of plain counting while there is only one.
#pragma once
#include <sys/single_threaded.h>

#include <atomic>

namespace espalier {

/// Adds to a counter and returns what it was before.
template <class T>
inline T count_up(std::atomic<T>& counter, T by = 1) noexcept {
  if (__libc_single_threaded) {
    const T before = counter.load(std::memory_order_relaxed);
    counter.store(before + by, std::memory_order_relaxed);
    return before;
  }
  return counter.fetch_add(by, std::memory_order_relaxed);
}

/// Takes from a counter and returns what it was before; whoever brings it to zero sees what the others did.
template <class T>
inline T count_down(std::atomic<T>& counter, T by = 1) noexcept {
  if (__libc_single_threaded) {
    const T before = counter.load(std::memory_order_relaxed);
    counter.store(before - by, std::memory_order_relaxed);
    return before;
  }
  return counter.fetch_sub(by, std::memory_order_acq_rel);
}

}  // namespace espalier
