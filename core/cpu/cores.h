// The processor cores of this process.
#pragma once
#include <vector>

namespace espalier {

/// The cores this process may run on; empty where the system does not say.
std::vector<int> allowed_cores();
/// Their number: at least 1.
int core_count();

/// Tells the core that this thread spins, so that its sibling gets the execution units.
inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace espalier
