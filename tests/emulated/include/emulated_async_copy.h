// cp.async, as the PTX ISA has it, 9.7.9.25.3. A copy is done as late as it may be, when its thread waits for
// it; until then its target holds nothing that was or will be there, since it may be written at any time.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "emulated_device.h"

namespace emulated {

struct AsyncCopy {
  void* to;
  const void* from;
  int bytes, read;
};
/// The copies that a thread has not waited for.
using PendingCopies = std::vector<AsyncCopy>;
/// Of the current thread.
inline PendingCopies& pending_copies() {
  return static_cast<PendingCopies*>(device().pending_copies)[device().linear];
}

inline void copy_async(void* to, const void* from, int bytes, int read) {
  const auto misaligned = [&](const void* address) {
    return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) != 0;
  };
  if (misaligned(to) || misaligned(from)) __trap();
  std::memset(to, 0xCB, static_cast<size_t>(bytes));
  pending_copies().push_back({to, from, bytes, read});
}

inline void await_copies() {
  PendingCopies& pending = pending_copies();
  for (const AsyncCopy& copy : pending) {
    std::memset(copy.to, 0, static_cast<size_t>(copy.bytes));
    if (copy.read) std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.read));
  }
  pending.clear();
}

}  // namespace emulated
