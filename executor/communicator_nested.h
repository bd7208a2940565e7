// Replicas that are threads of several processes.
#pragma once
#include <memory>
#include <vector>

#include "espalier/executor/communicator.h"

namespace espalier {

/// The communicators of `threads` ranks, each for one thread of this process, in a job whose processes meet
/// in `world`; every process makes as many. Rank `world->rank() * threads + t`, of `world->size() * threads`.
/// Sums go over a process's ranks in their order, then over the processes; 16-bit reals are rounded once,
/// after both. From here on nobody else uses `world`, which waits as long as the group's ranks do, and 2 s.
/// Throws Error unless `threads` is positive.
std::vector<std::shared_ptr<Communicator>> make_nested_group(int threads,
                                                             std::shared_ptr<Communicator> world);

}  // namespace espalier
