#include "process_threads.h"

#include "espalier/core/error.h"
#include "espalier/executor/communicators/distributed.h"
#include "espalier/executor/communicators/groups.h"

namespace espalier {

namespace {
thread_local std::shared_ptr<Communicator> world_of_thread;
}  // namespace

namespace testing {

ProcessScope::ProcessScope(std::shared_ptr<Communicator> world) { world_of_thread = std::move(world); }
ProcessScope::~ProcessScope() { world_of_thread = nullptr; }

}  // namespace testing

// In place of executor/communicators/distributed.cpp, which the linker then leaves in its archive.
namespace distributed {

int rank() { return world_of_thread ? world_of_thread->rank() : 0; }
int size() { return world_of_thread ? world_of_thread->size() : 1; }
int local_rank(std::source_location) { return rank(); }

std::shared_ptr<Communicator> world(std::source_location) {
  static const std::shared_ptr<Communicator> alone = make_thread_group(1).front();
  return world_of_thread ? world_of_thread : alone;
}

std::vector<std::shared_ptr<Communicator>> make_group(const std::vector<Device>& devices,
                                                      std::shared_ptr<Communicator> world,
                                                      std::source_location where) {
  return located(where, [&] { return espalier::make_group(devices, std::move(world)); });
}

}  // namespace distributed
}  // namespace espalier
