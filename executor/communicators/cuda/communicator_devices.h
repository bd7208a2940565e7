// Ranks that are threads of one process, with tensors on GPUs that can access each other's memory.
#pragma once
#include "espalier/executor/communicators/groups.h"

namespace espalier {

/// A group with one rank per device; a device may have several. The host waits only for the other ranks to
/// call a collective: its kernels come next in the stream of the calling thread (the eager one, or that of
/// its plan), behind earlier work in the streams of all ranks. Results have the bits of a thread group. A
/// stream under capture is refused (UnsupportedError).
///
/// Throws DeviceError for devices that are no GPUs of this process, UnsupportedError if two of them cannot
/// access each other's memory, or for more than 64 ranks, and Error without devices.
CommunicatorGroup make_device_group(const std::vector<Device>& devices);

void add_cuda_groups(GroupMakers& makers);

}  // namespace espalier
