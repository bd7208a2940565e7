#include "espalier/core/cpu/contention.h"

#include <algorithm>

namespace espalier {

void Contention::report(Clock::duration work, Clock::duration waited) {
  State& now = state();
  if (waited <= 3 * work + tolerated) {
    now.pause = std::max(shortest_pause, now.pause / 2);
    return;
  }
  now.until = Clock::now() + now.pause;
  now.pause = std::min(longest_pause, 2 * now.pause);
}

}  // namespace espalier
