// Distributed work: the processes of a job begun by mpirun, and groups of ranks on several devices.
#pragma once
#include <memory>
#include <vector>

#include "espalier/executor/communicators/communicator.h"

namespace espalier::distributed {

/// The number of this process in its job, and the number of processes: 0 of 1 without mpirun.
int rank();
int size();

/// The number of this process among those on its machine, as in gpu(local_rank()) where each has a GPU. Like
/// world() it initializes MPI and throws.
int local_rank(std::source_location where = std::source_location::current());

/// The communicator of all processes, for one thread at a time. The first call initializes MPI, in all
/// processes at once. Throws UnsupportedError if Espalier's library for MPI is not found, and
/// CommunicatorError if not all processes call it within the timeout of communicators.
std::shared_ptr<Communicator> world(std::source_location where = std::source_location::current());

/// The communicators of a group with one rank per device, each for one thread. With `world` the group spans
/// its processes: each calls this with as many devices, and gets the ranks from `world->rank() * devices` on;
/// the group owns `world` from here on.
///
/// CPU devices: ranks share memory, or use `world` between processes. GPUs: NCCL where it is there and each
/// rank has a GPU of its own, else peer access within one process. Across processes GPUs need NCCL, and a
/// process has one. On GPUs a collective runs in the stream of the calling thread's kernels, and the host
/// waits for no device; through NCCL the order of sums is NCCL's, and 16-bit reals are added in 16 bits.
/// Results are valid once a later barrier() has not thrown.
///
/// Throws UnsupportedError for devices that cannot form a group, DeviceError for devices that are not there,
/// and Error without any.
std::vector<std::shared_ptr<Communicator>> make_group(
    const std::vector<Device>& devices, std::shared_ptr<Communicator> world = nullptr,
    std::source_location where = std::source_location::current());

}  // namespace espalier::distributed
