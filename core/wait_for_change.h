// wait_for_change: a wait for another thread that mostly is short.
#pragma once
#include <atomic>
#include <thread>

namespace espalier {

/// Waits until the value is another, and sleeps only if that takes some tens of microseconds: to wake a
/// thread takes as long.
template <class T>
T wait_for_change(const std::atomic<T>& value, T old) {
  constexpr int yields_before_sleep = 100;
  for (int i = 0; i < yields_before_sleep; ++i) {
    if (const T now = value.load(); now != old) return now;
    std::this_thread::yield();
  }
  value.wait(old);
  return value.load();
}

}  // namespace espalier
