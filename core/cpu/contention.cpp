// Contention, and with it what makes waiting threads spin briefly (work_watch.h).
#include "espalier/core/cpu/contention.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

#include "espalier/core/cpu/work_watch.h"

namespace espalier {

void Contention::report(Clock::duration work, Clock::duration waited) {
  State& now = state();
  const bool late = waited > 3 * work + tolerated;
  count_run(late);
  if (!late) {
    now.pause = std::max(shortest_pause, now.pause / 2);
    return;
  }
  now.until = Clock::now() + now.pause;
  now.pause = std::min(longest_pause, 2 * now.pause);
}

void count_run(bool late) {
  constexpr int of_late_one = 32, enough = 4 * of_late_one;
  static thread_local int count = 0;
  if (spins_briefly()) return;  // runs are late by that, too: it ends, and what comes late then counts
  count = late ? count + of_late_one : std::max(0, count - 1);
  if (count < enough) return;
  count = 0;
  spin_briefly();
}

#if defined(_OPENMP) && defined(__GNUC__) && !defined(__clang__)

namespace {

/// Two OpenMP threads that do nothing. With them there are more than processors, and those of all teams spin
/// 100 times instead of 300,000 (GNU libgomp manual, GOMP_SPINCOUNT).
class IdleThreads {
 public:
  ~IdleThreads() {
    if (!thread_.joinable()) return;
    if (owner_ != getpid()) {  // a forked child has no such thread
      thread_.detach();
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void hold() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;  // another thread holds it, or did so when this process was forked
    until_ = Contention::Clock::now() + std::chrono::seconds(1);
    if (there_) return;
    if (thread_.joinable()) thread_.join();
    try {
      thread_ = std::thread([this] { idle(); });
      there_ = true;
      owner_ = getpid();
    } catch (const std::system_error&) {  // no thread is to be had: then waiting goes on as before
    }
  }
  bool there() const { return there_; }

 private:
  void idle() noexcept {
#pragma omp parallel num_threads(2)
    {
#pragma omp master
      {
        std::unique_lock lock(mutex_);
        while (!ends_ && Contention::Clock::now() < until_) changed_.wait_until(lock, until_);
        there_ = false;
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  Contention::Clock::time_point until_{};
  std::atomic<bool> there_ = false;
  bool ends_ = false;
  pid_t owner_ = 0;
};

IdleThreads& idle_threads() {
  static IdleThreads threads;
  return threads;
}

}  // namespace

void spin_briefly() { idle_threads().hold(); }
bool spins_briefly() { return idle_threads().there(); }
bool can_spin_briefly() { return true; }

#else

void spin_briefly() {}
bool spins_briefly() { return false; }
bool can_spin_briefly() { return false; }

#endif

}  // namespace espalier
