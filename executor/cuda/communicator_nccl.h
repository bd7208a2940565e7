// Replicas whose tensors lie on a GPU each, and meet through NCCL.
#pragma once
#include <memory>
#include <vector>

#include "espalier/executor/communicator.h"

namespace espalier {

// Collectives come next in the stream in which this thread's kernels run, and can be captured in a CUDA
// graph; the host waits for no device. What NCCL computes differs from other communicators in this: it
// chooses the order in which it adds, adds 16-bit reals in 16 bits, and says nothing about NaN in maxima and
// minima.
//
// While a device waits in a collective, a thread of the host watches it. If that takes longer than the
// timeout, or NCCL says that another rank is gone, NCCL is told to give up: the device goes on, with wrong
// values, and all that this communicator is asked from then on throws CommunicatorError. So whoever waits for
// a device calls barrier() before he believes in its results, and launches no graph with collectives again
// once something was thrown, or the communicator is gone.

/// The communicators of as many ranks as there are devices, all in this process, each for one thread. Ranks
/// meet and compare on the host before each collective, or once while it is captured. Throws UnsupportedError
/// without NCCL, or if a device is named twice: NCCL takes no two ranks on one GPU, and make_device_group
/// does; DeviceError for devices that are none of this process's GPUs.
std::vector<std::shared_ptr<Communicator>> make_nccl_group(const std::vector<Device>& devices);

/// This process's communicator with those that have the other ranks of `bootstrap` (a communicator for the
/// CPU, such as distributed::world()), and make theirs at the same time. Through `bootstrap` the ranks agree
/// on a communicator, and compare a collective when they call it for the first time: as often as a program
/// has different ones. If ranks call known ones in another order, nobody compares: a rank waits for its
/// timeout, or computes with what others meant for something else. Throws UnsupportedError without NCCL, or
/// if two ranks are on one GPU, and CommunicatorError if the ranks do not meet.
std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> bootstrap, Device device);

}  // namespace espalier
