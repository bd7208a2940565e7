#include "espalier/executor/thread_meeting.h"

#include <sched.h>

#include <thread>

namespace espalier {
namespace {

// A few microseconds; then others may need the core.
constexpr int pauses = 500, yields = 50;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// As many cores as this process may use.
unsigned cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
  return std::thread::hardware_concurrency();
}

}  // namespace

ThreadMeeting::ThreadMeeting(int ranks)
    : ranks_(static_cast<uint64_t>(ranks)), spins_(static_cast<unsigned>(ranks) <= cores() ? pauses : 0) {}

// Who sleeps announces it and then looks at the state; who changes the state then looks for sleepers. Both in
// one order for all (seq_cst), so one of the two sees the other.
void ThreadMeeting::wake() {
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  { const std::lock_guard lock(mutex_); }  // nobody is between looking and sleeping
  changed_.notify_all();
}

bool ThreadMeeting::arrive(uint64_t number) {
  uint64_t state = state_.load(std::memory_order_relaxed);
  do {
    if (state & failed_bit) return false;
  } while (
      !state_.compare_exchange_weak(state, state + 1, std::memory_order_seq_cst, std::memory_order_relaxed));
  if (complete(state + 1, number)) wake();
  return true;
}

void ThreadMeeting::arrive_anyway(uint64_t number) {
  if (complete(state_.fetch_add(1, std::memory_order_seq_cst) + 1, number)) wake();
}

template <class Done>
bool ThreadMeeting::spin(const Done& done) {
  for (int i = 0; i < spins_; ++i) {
    if (done(state_.load(std::memory_order_acquire))) return true;
    pause_briefly();
  }
  for (int i = 0; i < yields; ++i) {
    if (done(state_.load(std::memory_order_acquire))) return true;
    std::this_thread::yield();
  }
  return false;
}

ThreadMeeting::Outcome ThreadMeeting::wait(uint64_t number, Clock::time_point until, bool nap) {
  const auto done = [&](uint64_t state) { return complete(state, number) || (state & failed_bit); };
  if (nap || !spin(done)) {
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    changed_.wait_until(lock, until, [&] { return done(state_.load(std::memory_order_seq_cst)); });
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }
  const uint64_t state = state_.load(std::memory_order_acquire);
  if (complete(state, number)) return Outcome::complete;
  return state & failed_bit ? Outcome::failed : Outcome::late;
}

void ThreadMeeting::wait_anyway(uint64_t number, bool nap) {
  const auto done = [&](uint64_t state) { return complete(state, number); };
  if (!nap && spin(done)) return;
  std::unique_lock lock(mutex_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  changed_.wait(lock, [&] { return done(state_.load(std::memory_order_seq_cst)); });
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

bool ThreadMeeting::fail(std::string reason, uint64_t number) {
  {
    // Who sees the bit waits here for the reason.
    const std::lock_guard lock(mutex_);
    uint64_t state = state_.load(std::memory_order_relaxed);
    do {
      if (number && complete(state, number)) return false;
      if (state & failed_bit) return true;
    } while (!state_.compare_exchange_weak(state, state | failed_bit, std::memory_order_seq_cst,
                                           std::memory_order_relaxed));
    reason_ = std::move(reason);
  }
  changed_.notify_all();
  return true;
}

std::string ThreadMeeting::reason() {
  const std::lock_guard lock(mutex_);
  return reason_;
}

}  // namespace espalier
