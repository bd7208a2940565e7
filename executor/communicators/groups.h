// Groups of ranks: communicators that belong together, one per rank, and what makes them for each type of
// device.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "espalier/executor/communicators/communicator.h"
#include "espalier/executor/communicators/gradient_sync.h"

namespace espalier {

/// The communicators of the ranks of this process, each for one thread.
using CommunicatorGroup = std::vector<std::shared_ptr<Communicator>>;

/// `size` ranks with tensors on the CPU. The destruction of a communicator is an error for ranks that still
/// call collectives. Throws Error unless size is positive.
CommunicatorGroup make_thread_group(int size);

/// `threads` ranks with tensors on the CPU in a job whose processes are the ranks of `world`; every process
/// makes as many. They are `world->rank() * threads + t`, of `world->size() * threads`. Sums go over the
/// ranks of a process in their order, then over the processes; 16-bit reals are rounded once, after both. The
/// group owns `world` from here on, and adds 2 s to its own timeout there. Throws Error unless `threads` is
/// positive.
CommunicatorGroup make_nested_group(int threads, std::shared_ptr<Communicator> world);

/// How ranks on devices of one type work together.
struct GroupMaker {
  /// Makers for ranks of one process. If one throws UnsupportedError, the next one is tried.
  std::vector<CommunicatorGroup (*)(const std::vector<Device>&)> in_process;
  /// For the ranks of several processes, which are the ranks of `world`.
  CommunicatorGroup (*in_job)(const std::vector<Device>&, std::shared_ptr<Communicator> world) = nullptr;
  std::unique_ptr<GradientSync> (*gradient_sync)(std::shared_ptr<Communicator>, Device, bool job) = nullptr;
};
using GroupMakers = std::map<DeviceType, GroupMaker>;
/// Those of all backends in this build.
GroupMakers make_group_makers();
/// Those of the CPU.
void add_cpu_groups(GroupMakers& makers);

/// A group with one rank per device, of this process or of all processes of `world`. Throws UnsupportedError
/// for devices that cannot form a group, DeviceError for devices that are not there, and Error without any.
CommunicatorGroup make_group(const std::vector<Device>& devices, std::shared_ptr<Communicator> world);
/// The gradient sync of a rank on that device. `job`: its group spans processes.
std::unique_ptr<GradientSync> make_gradient_sync(std::shared_ptr<Communicator> communicator, Device device,
                                                 bool job);

}  // namespace espalier
