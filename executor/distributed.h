// Programs that mpirun begins several times, to train one model together.
#pragma once
#include <memory>
#include <source_location>

namespace espalier {
class Communicator;
}

namespace espalier::distributed {

/// Which of the processes this is, of how many: 0 of 1 unless mpirun began it.
int rank();
int size();

/// The communicator of all processes, for one thread at a time; the first call begins MPI, in all processes
/// at once. Throws UnsupportedError if Espalier's library for MPI is not found, and CommunicatorError if the
/// processes do not meet within the time that communicators wait.
std::shared_ptr<Communicator> world(std::source_location where = std::source_location::current());

}  // namespace espalier::distributed
