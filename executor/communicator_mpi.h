// Replicas that are processes, begun by mpirun.
#pragma once
#include <memory>

#include "espalier/executor/communicator.h"

struct EspalierMpi;

namespace espalier {

/// This process's communicator with all others; they make theirs at the same time. Throws CommunicatorError.
std::shared_ptr<Communicator> make_mpi_communicator(const EspalierMpi& mpi);

}  // namespace espalier
