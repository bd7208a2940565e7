// Kernels of libraries, which share out their work themselves, beside other programs.
#pragma once
#include <algorithm>

#include "espalier/core/cpu/contention.h"
#include "espalier/core/device.h"

namespace espalier {

/// For the next second, OpenMP's threads that wait for work sleep after some microseconds. They spin for
/// milliseconds otherwise, which makes the next loop start sooner, but uses up their share of a core that
/// another program wants: then they are not there when there is work. Nothing happens where OpenMP is not
/// GNU's.
void spin_briefly();
bool spins_briefly();
/// Whether `spin_briefly` has an effect.
bool can_spin_briefly();

/// Counts runs of shared out work that took far longer than they might, of the calling thread; with some in a
/// short time, threads spin briefly.
void count_run(bool late);

/// The runs of one kernel, which all take equally long if no other program has the cores.
class WorkWatch {
 public:
  /// Runs it; `shared` says whether several threads do.
  template <class F>
  void run(bool shared, F&& kernel) {
    if (!shared || num_threads() == 1) return kernel();
    const auto begin = Contention::Clock::now();
    kernel();
    const auto took = Contention::Clock::now() - begin;
    count_run(took > 2 * shortest_ + tolerated);
    shortest_ = std::min(shortest_, took);
  }

 private:
  static constexpr Contention::Clock::duration tolerated = std::chrono::microseconds(100);
  Contention::Clock::duration shortest_ = std::chrono::hours(1);
};

}  // namespace espalier
