// A block of a kernel's threads, which run in turn.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"
#include "fiber.h"

namespace emulated {

enum class State { Unstarted, Running, AtBarrier, InWarp, Asleep, Ended };

struct Thread {
  uint3 index;
  State state;
  Fiber* fiber;
  // The operation that the thread waits in, its operands, and its result.
  int operation;
  unsigned mask;
  unsigned long long value;
  unsigned source;
  unsigned long long result;
};

/// A block. Fibers are reused for later blocks and kernels.
class Block {
 public:
  void start(const dim3& size, const uint3& index, size_t shared_bytes, bool reverse,
             const std::function<void()>& body);
  /// Runs the threads until all have ended, which it returns, or none can go on while some sleep.
  bool run();
  /// An error message, or "", after the end.
  std::string complaint();
  /// Discards what runs.
  void abandon();
  /// How often a thread has ended or has met others.
  uint64_t events() const { return events_; }

  void sleep();
  int barrier(BarrierOperation operation, int predicate);
  unsigned long long warp(WarpOperation operation, unsigned mask, unsigned long long value, unsigned source);
  [[noreturn]] void fail(std::string complaint);
  [[noreturn]] void fiber_loop();

 private:
  Thread& current() { return threads_[current_]; }
  bool next_unstarted();
  void resume(unsigned thread);
  /// Makes a thread that can go on the current one; returns its stack.
  Fiber* enter(unsigned thread);
  unsigned next_ready() { return ready_[ready_begin_++]; }
  bool any_ready() const { return ready_begin_ < ready_.size(); }
  /// Suspends the running thread and resumes others; returns when the thread is ready.
  void wait();
  void thread_ended();
  void make_ready(unsigned thread);
  void finish_barrier();
  void finish_warp(unsigned warp);
  std::string deadlock() const;
  std::string name(unsigned thread) const;
  Fiber* free_fiber();
  unsigned char* shared();
  [[noreturn]] void leave();

  dim3 size_{0, 0, 0};
  uint3 index_{0, 0, 0};
  bool reverse_ = false;
  const std::function<void()>* body_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<unsigned> live_;   ///< of each warp: the lanes which have not ended
  std::vector<unsigned> ready_;  ///< a queue, read from ready_begin_
  size_t ready_begin_ = 0;
  std::vector<unsigned> asleep_;
  bool begun_ = false;
  uint64_t events_ = 0;
  unsigned started_ = 0, running_threads_ = 0, at_barrier_ = 0;
  unsigned current_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  Fiber* active_ = nullptr;
  Context host_;
  std::string complaint_;
  std::vector<unsigned char> shared_;
  size_t shared_bytes_ = 0;
  std::vector<LaneOperands> lane_operands_ = std::vector<LaneOperands>(1024);
  std::vector<PendingCopies> pending_copies_ = std::vector<PendingCopies>(1024);  ///< of each thread
};

}  // namespace emulated
