// Replicas that are threads of one process.
#pragma once
#include <memory>
#include <vector>

#include "espalier/executor/communicator.h"

namespace espalier {

/// The communicators of `size` ranks, each for one thread. A rank whose communicator goes has left: that is
/// an error for those who still call something. Throws Error unless size is positive.
std::vector<std::shared_ptr<Communicator>> make_thread_group(int size);

}  // namespace espalier
