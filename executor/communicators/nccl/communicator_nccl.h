// Ranks with a GPU each, connected by NCCL.
#pragma once
#include "espalier/executor/communicators/groups.h"

namespace espalier {

// Collectives are enqueued in the stream of the calling thread's kernels, and can be captured in a CUDA
// graph; the host waits for no device. Results differ from other communicators': NCCL chooses the order of
// sums, adds 16-bit reals in 16 bits, and does not specify NaN in maxima and minima.
//
// A host thread watches each device that waits in a collective. After the timeout, or an error that NCCL
// reports, it aborts NCCL's communicator: the device goes on, with wrong values, and every later call throws
// CommunicatorError. So results are valid only after a barrier() that did not throw, and a graph with
// collectives may not be launched again after an error or the destruction of the communicator.

/// A group with one rank per device, all in this process. Ranks compare their calls on the host before each
/// collective, or once when it is captured. Throws UnsupportedError without NCCL, or if a device is named
/// twice: NCCL takes no two ranks on one GPU, and make_device_group does; DeviceError for devices that are no
/// GPUs of this process.
CommunicatorGroup make_nccl_group(const std::vector<Device>& devices);

/// This process's rank in a group of processes, which all call this at once. `bootstrap` is a communicator of
/// theirs with tensors on the CPU, such as distributed::world(); through it the ranks connect, and compare a
/// collective when it is first called. Known collectives that ranks call in different orders are not
/// detected: a rank times out, or combines values that do not belong together. Throws UnsupportedError
/// without NCCL, or if two ranks are on one GPU, and CommunicatorError if the ranks do not arrive.
std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> bootstrap, Device device);

/// Added after those of CUDA, and preferred to them: NCCL knows the links between GPUs.
void add_nccl_groups(GroupMakers& makers);

}  // namespace espalier
