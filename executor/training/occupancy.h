// Occupancy: which thread is inside an executor.
#pragma once
#include <atomic>

namespace espalier {

/// An address that no other running thread has.
const void* this_thread() noexcept;

/// An executor serves one thread at a time, except where it says otherwise.
class Occupancy {
 public:
  /// Returns false if a thread is inside already. `what` is what it calls, and lives on.
  bool try_enter(const char* what) noexcept {
    const void* none = nullptr;
    if (!thread_.compare_exchange_strong(none, this_thread(), std::memory_order_acquire,
                                         std::memory_order_relaxed))
      return false;
    what_.store(what, std::memory_order_relaxed);
    return true;
  }
  void leave() noexcept { thread_.store(nullptr, std::memory_order_release); }
  bool has_this_thread() const noexcept { return thread_.load(std::memory_order_relaxed) == this_thread(); }
  /// Throws the Error that `what` was called while a thread is inside.
  [[noreturn]] void refuse(const char* what) const;

 private:
  std::atomic<const void*> thread_{nullptr};
  std::atomic<const char*> what_{""};
};

/// Leaves an executor that this thread has entered, at the end of a scope.
class Leaving {
 public:
  explicit Leaving(Occupancy& occupancy) : occupancy_(occupancy) {}
  ~Leaving() { occupancy_.leave(); }
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;

 private:
  Occupancy& occupancy_;
};

/// A thread inside an executor, for a scope. Throws Error if one is inside already.
class Inside {
 public:
  Inside(Occupancy& occupancy, const char* what) : occupancy_(occupancy) {
    if (!occupancy_.try_enter(what)) occupancy_.refuse(what);
  }
  ~Inside() { occupancy_.leave(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Occupancy& occupancy_;
};

/// The same for what callbacks may call, too: it throws only if another thread is inside.
class Visit {
 public:
  Visit(Occupancy& occupancy, const char* what) : occupancy_(occupancy) {
    if (occupancy_.has_this_thread()) return;
    if (!occupancy_.try_enter(what)) occupancy_.refuse(what);
    entered_ = true;
  }
  ~Visit() {
    if (entered_) occupancy_.leave();
  }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  Occupancy& occupancy_;
  bool entered_ = false;
};

}  // namespace espalier
