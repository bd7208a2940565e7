#include "espalier/executor/training/interrupt.h"

#include <signal.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>

namespace espalier {

namespace {

/// Whether our handler is installed. Transitions from `hosts` are made with the mutex held; those from `ours`
/// go through `leaving`.
enum class State : int { hosts, ours, leaving };

std::mutex mutex;
int users = 0;
struct sigaction host {};  // written before our handler is set, while no handler reads it
std::atomic<State> state{State::hosts};
std::atomic<uint32_t> signals{0};
static_assert(std::atomic<State>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "a signal handler may only use atomics without locks");

/// Calls only functions that are safe in a signal handler.
void on_interrupt(int signal) {
  const int error = errno;
  State expected = State::ours;
  if (state.compare_exchange_strong(expected, State::leaving)) {
    signals.fetch_add(1);
    ::sigaction(SIGINT, &host, nullptr);
    state.store(State::hosts);
  } else {
    // A second signal, or the program has restored our handler after it was removed: this one is not ours.
    ::sigaction(SIGINT, &host, nullptr);
    ::raise(signal);  // delivered when this handler returns
  }
  errno = error;
}

bool handler_is_ours(const struct sigaction& action) {
  return !(action.sa_flags & SA_SIGINFO) && action.sa_handler == on_interrupt;
}

void install() {
  while (state.load() == State::leaving) std::this_thread::yield();
  if (state.load() == State::ours) return;
  struct sigaction current {};
  ::sigaction(SIGINT, nullptr, &current);
  if (!handler_is_ours(current)) host = current;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;  // so that reading data does not fail
  sigemptyset(&action.sa_mask);
  state.store(State::ours);  // before installing: a signal may come at once
  ::sigaction(SIGINT, &action, nullptr);
}

void uninstall() {
  while (state.load() == State::leaving) std::this_thread::yield();
  State expected = State::ours;
  if (!state.compare_exchange_strong(expected, State::leaving)) return;
  struct sigaction current {};
  ::sigaction(SIGINT, nullptr, &current);
  if (handler_is_ours(current)) ::sigaction(SIGINT, &host, nullptr);
  state.store(State::hosts);
}

}  // namespace

Interrupt::Interrupt(bool wanted) {
  if (!wanted) return;
  const std::lock_guard lock(mutex);
  before_ = signals.load();
  install();
  ++users;
  open_ = true;
}

bool Interrupt::requested() const { return open_ ? signals.load() != before_ : came_; }

bool Interrupt::close() {
  if (!open_) return came_;
  const std::lock_guard lock(mutex);
  if (--users == 0) uninstall();
  came_ = signals.load() != before_;
  open_ = false;
  return came_;
}

}  // namespace espalier
