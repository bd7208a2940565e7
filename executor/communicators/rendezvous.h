// Rendezvous: threads of this process begin a collective together and compare it, or all learn why not.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "espalier/executor/communicators/barrier.h"
#include "espalier/executor/communicators/collective.h"

namespace espalier {

/// Threads 0 to `threads` (excluded) have the ranks from `first_rank` on. A collective has `phases` barriers;
/// in the first one the threads compare their calls.
class Rendezvous {
 public:
  Rendezvous(int threads, int phases, int first_rank = 0);

  /// Begins the next collective of `thread`. Returns when all threads have begun it with matching calls, and
  /// says whether any requests a stop; else all throw CommunicatorError, after `timeout` seconds at the
  /// latest. Earlier writes of each thread are visible to the others then.
  bool begin(int thread, const Collective& call, double timeout, bool blocking);
  /// Waits for all threads at a later phase, from 2 on. These do not fail: a thread in a collective finishes
  /// it.
  void arrive_and_wait(int thread, int phase, bool blocking);

  /// Present and later calls of `begin` throw. The first reason stays. Without memory for the message nothing
  /// happens, and the other threads time out.
  void fail(const std::string& reason) noexcept;
  /// Fails because `thread` makes no more calls.
  void leave(int thread) noexcept;
  std::string reason() { return barrier_.reason(); }

 private:
  // The calls of one thread. The last two are kept: a thread that times out reads the last call of the
  // missing one.
  struct alignas(64) Place {
    std::array<Collective, 2> calls;
    std::atomic<uint64_t> begun{0};
    uint64_t count = 0;  // collectives begun
  };

  uint64_t phase_number(int thread, int phase) const;
  bool compare(int thread, const Collective& call);
  std::string missing(uint64_t number, double timeout) const;
  [[noreturn]] void throw_failure(const Collective& call);

  const int phases_, first_rank_;
  FailableBarrier barrier_;
  std::vector<Place> places_;
};

}  // namespace espalier
