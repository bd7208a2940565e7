// Ranks that are processes of one job, started by mpirun.
#pragma once
#include <memory>

#include "espalier/executor/communicators/communicator.h"

struct EspalierMpi;

namespace espalier {

/// The communicator of this process in the group of all; all processes call this at once. Throws
/// CommunicatorError.
std::shared_ptr<Communicator> make_mpi_communicator(const EspalierMpi& mpi);

}  // namespace espalier
