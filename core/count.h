// Reference counts: atomic once the process has several threads, plain while it has one.
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

/// Decrements a counter and returns its previous value. The thread that reaches zero sees all writes of the
/// others.
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
