// Fibers: stacks between which a host thread switches.
#pragma once
#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulated {

/// A suspended execution.
class Context {
 public:
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Suspends this context and resumes `to`; returns at the next switch to this context.
  void switch_to(Context& to);
  /// Must be the first call on a new stack.
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

/// An execution on its own stack, with a guard page below it.
class Fiber : public Context {
 public:
  /// `run` must not return.
  explicit Fiber(void (*run)());
  ~Fiber();

  /// Discards the suspended execution: the next switch to the fiber calls `run`.
  void restart();

 private:
  void (*run_)();
  void* memory_;
};

}  // namespace emulated
