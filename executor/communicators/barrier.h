// FailableBarrier: a barrier of threads that can fail, so that all of them learn of an error on one.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

namespace espalier {

/// Counts arrivals. Phases follow each other and each thread arrives at each, so the n-th phase is complete
/// after n arrivals per thread. No thread arrives after a failure, so all agree on which phases completed.
/// What a thread wrote before its arrival is visible to threads that have seen the phase complete.
class FailableBarrier {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Outcome { complete, failed, timed_out };

  explicit FailableBarrier(int threads);

  /// Arrives at phase `number` (from 1 on); returns false without arriving if the barrier has failed.
  bool arrive(uint64_t number);
  /// Arrives even after a failure: for threads that must finish a step together.
  void arrive_always(uint64_t number);

  /// Waits until phase `number` is complete, the barrier fails, or the time is over. A blocking wait does not
  /// spin first.
  Outcome wait(uint64_t number, Clock::time_point until, bool blocking = false);
  /// Waits for the phase without a limit, and even after a failure.
  void wait_always(uint64_t number, bool blocking = false);

  /// Fails the barrier, unless phase `number` is complete: then it returns false. With 0 it always fails. The
  /// first reason stays.
  bool fail(std::string reason, uint64_t number = 0);
  bool failed() const { return state_.load(std::memory_order_acquire) & failed_bit; }
  /// Why it failed.
  std::string reason();

 private:
  static constexpr uint64_t failed_bit = uint64_t{1} << 63;

  bool complete(uint64_t state, uint64_t number) const { return (state & ~failed_bit) >= number * threads_; }
  void wake();
  template <class Done>
  bool spin(const Done& done);

  const uint64_t threads_;
  const int spins_;
  std::atomic<uint64_t> state_{0};  // number of arrivals, and the failed bit
  std::atomic<int> waiters_{0};     // blocked threads
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string reason_;
};

}  // namespace espalier
