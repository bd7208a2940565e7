#include "espalier/core/cpu/cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace espalier {

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

int core_count() {
  const auto allowed = static_cast<int>(allowed_cores().size());
  return std::max(1, allowed > 0 ? allowed : static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace espalier
