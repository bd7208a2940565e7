// Threads in place of the processes of a job.
#pragma once
#include <memory>

#include "espalier/executor/communicators/communicator.h"

namespace espalier::testing {

/// While it lives, distributed::rank(), size() and world() of this thread are those of `world`. Without one
/// a thread is a job of one process. The functions of distributed.h are replaced where this file is linked.
class ProcessScope {
 public:
  explicit ProcessScope(std::shared_ptr<Communicator> world);
  ~ProcessScope();
  ProcessScope(const ProcessScope&) = delete;
  ProcessScope& operator=(const ProcessScope&) = delete;
};

}  // namespace espalier::testing
