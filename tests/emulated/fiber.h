// Fibers: stacks between which one thread of the host switches.
#pragma once
#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulated {

/// Where something that does not run now goes on.
class Context {
 public:
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Goes on at `to`, and returns when somebody switches here.
  void switch_to(Context& to);
  /// The first call on a new stack.
  static void arrive();

 protected:
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t state_{};
#endif
  // For the address sanitizer, which follows the stacks.
  void* fake_stack_ = nullptr;
  const void* stack_ = nullptr;
  size_t stack_bytes_ = 0;
};

/// A stack of its own, with a guard page below it.
class Fiber : public Context {
 public:
  /// `run` never returns.
  explicit Fiber(void (*run)());
  ~Fiber();

  /// Forgets where it was: it begins anew when it is switched to.
  void restart();

 private:
  void (*run_)();
  void* memory_;
};

}  // namespace emulated
