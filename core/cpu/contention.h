// Whether other programs keep a second thread from running.
#pragma once
#include <chrono>

namespace espalier {

/// A loop that is shared out ends when its last thread does. Where another program has the core of that
/// thread, it comes a time slice of the scheduler later, which is long beside a short loop. So this thread
/// watches how long it waits for the others, and goes on alone for a while if that is far longer than its own
/// share took. The results are the same.
class Contention {
 public:
  using Clock = std::chrono::steady_clock;

  /// Whether loops of the calling thread are better not shared out now.
  static bool here() { return state().until != Clock::time_point() && Clock::now() < state().until; }
  /// A loop was shared out: its own share took `work`, and it then waited for the others.
  static void report(Clock::duration work, Clock::duration waited);

 private:
  struct State {
    Clock::time_point until{};
    Clock::duration pause = shortest_pause;
  };
  static constexpr Clock::duration shortest_pause = std::chrono::milliseconds(2),
                                   longest_pause = std::chrono::milliseconds(200),
                                   tolerated = std::chrono::microseconds(100);
  static State& state() {
    static thread_local State state;
    return state;
  }
};

}  // namespace espalier
