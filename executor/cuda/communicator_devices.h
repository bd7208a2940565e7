// Replicas that are threads of one process, with their tensors on GPUs.
#pragma once
#include <memory>
#include <vector>

#include "espalier/executor/communicator.h"

namespace espalier {

/// The communicators of as many ranks as there are devices, each for one thread and for tensors on its
/// device; a device may be named more than once. A collective waits for the other ranks to call it, and not
/// for any device: what it does comes next in the stream in which this thread's kernels run (the eager one,
/// or that of the plan), behind what came before in the streams of all ranks. Results have the bits that a
/// thread group's have. It cannot be called while that stream is captured (UnsupportedError).
///
/// Throws DeviceError for devices that are none of this process's GPUs, UnsupportedError if two of them do
/// not reach each other's memory, or there are more than 64 ranks, and Error if there is none.
std::vector<std::shared_ptr<Communicator>> make_device_group(const std::vector<Device>& devices);

}  // namespace espalier
