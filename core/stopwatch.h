// Stopwatch: seconds since it was made, by a clock that is never set.
#pragma once
#include <chrono>
#include <utility>

namespace espalier {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  void restart() { begin_ = Clock::now(); }
  /// Seconds since it was made, or since the lap before.
  double lap() {
    const Clock::time_point before = std::exchange(begin_, Clock::now());
    return std::chrono::duration<double>(begin_ - before).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace espalier
