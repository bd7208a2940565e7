#include "espalier/executor/communicators/barrier.h"

#include <thread>

#include "espalier/core/cpu/cores.h"

namespace espalier {
namespace {

// A few microseconds; after that another thread may need the core.
constexpr int pauses = 500, yields = 50;

}  // namespace

FailableBarrier::FailableBarrier(int threads)
    : threads_(static_cast<uint64_t>(threads)), spins_(threads <= core_count() ? pauses : 0) {}

// A waiter increments waiters_ and then reads state_; an arrival changes state_ and then reads waiters_. Both
// are seq_cst, so at least one of the two sees the other's write and no wake-up is lost.
void FailableBarrier::wake() {
  if (waiters_.load(std::memory_order_seq_cst) == 0) return;
  { const std::lock_guard lock(mutex_); }  // no waiter is between its check and its wait
  changed_.notify_all();
}

bool FailableBarrier::arrive(uint64_t number) {
  uint64_t state = state_.load(std::memory_order_relaxed);
  do {
    if (state & failed_bit) return false;
  } while (
      !state_.compare_exchange_weak(state, state + 1, std::memory_order_seq_cst, std::memory_order_relaxed));
  if (complete(state + 1, number)) wake();
  return true;
}

void FailableBarrier::arrive_always(uint64_t number) {
  if (complete(state_.fetch_add(1, std::memory_order_seq_cst) + 1, number)) wake();
}

template <class Done>
bool FailableBarrier::spin(const Done& done) {
  for (int i = 0; i < spins_; ++i) {
    if (done(state_.load(std::memory_order_acquire))) return true;
    spin_pause();
  }
  for (int i = 0; i < yields; ++i) {
    if (done(state_.load(std::memory_order_acquire))) return true;
    std::this_thread::yield();
  }
  return false;
}

FailableBarrier::Outcome FailableBarrier::wait(uint64_t number, Clock::time_point until, bool blocking) {
  const auto done = [&](uint64_t state) { return complete(state, number) || (state & failed_bit); };
  if (blocking || !spin(done)) {
    std::unique_lock lock(mutex_);
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    changed_.wait_until(lock, until, [&] { return done(state_.load(std::memory_order_seq_cst)); });
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }
  const uint64_t state = state_.load(std::memory_order_acquire);
  if (complete(state, number)) return Outcome::complete;
  return state & failed_bit ? Outcome::failed : Outcome::timed_out;
}

void FailableBarrier::wait_always(uint64_t number, bool blocking) {
  const auto done = [&](uint64_t state) { return complete(state, number); };
  if (!blocking && spin(done)) return;
  std::unique_lock lock(mutex_);
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  changed_.wait(lock, [&] { return done(state_.load(std::memory_order_seq_cst)); });
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

bool FailableBarrier::fail(std::string reason, uint64_t number) {
  {
    // A thread that sees the bit waits for the lock, and so for the reason.
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

std::string FailableBarrier::reason() {
  const std::lock_guard lock(mutex_);
  return reason_;
}

}  // namespace espalier
