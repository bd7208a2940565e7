#include "espalier/executor/communicators/mpi/transport.h"

#include <mpi.h>

#include <cstdio>
#include <vector>

namespace {

MPI_Comm ranks = MPI_COMM_NULL;
std::vector<MPI_Request> requests;
bool initialized_here = false;

int start(const EspalierMpiMessage* messages, size_t count) {
  requests.assign(count, MPI_REQUEST_NULL);
  // Receives first, so that messages arrive at their place without a copy.
  for (const int receives : {1, 0})
    for (size_t i = 0; i < count; ++i) {
      const EspalierMpiMessage& message = messages[i];
      if (message.receives != receives) continue;
      const int bytes = static_cast<int>(message.bytes);
      const int error = receives
                            ? MPI_Irecv(message.data, bytes, MPI_BYTE, message.peer, 0, ranks, &requests[i])
                            : MPI_Isend(message.data, bytes, MPI_BYTE, message.peer, 0, ranks, &requests[i]);
      if (error != MPI_SUCCESS) return error;
    }
  return MPI_SUCCESS;
}

int test(int* done) {
  return MPI_Testall(static_cast<int>(requests.size()), requests.data(), done, MPI_STATUSES_IGNORE);
}

void progress() {
  int any = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, ranks, &any, MPI_STATUS_IGNORE);
}

void abandon() {
  for (MPI_Request& request : requests)
    if (request != MPI_REQUEST_NULL) {
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
}

void describe(int error, char* text, size_t bytes) {
  char message[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, message, &length);
  std::snprintf(text, bytes, "%s", message);
}

void finish() {
  MPI_Comm_free(&ranks);
  if (initialized_here) MPI_Finalize();
}

EspalierMpi functions{espalier_mpi_version, 0, 1, 0, 0, start, test, progress, abandon, describe, finish};

int open_ranks() {
  int initialized = 0;
  int error = MPI_Initialized(&initialized);
  if (error == MPI_SUCCESS && !initialized) {
    int level = 0;
    error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
    initialized_here = true;
  }
  if (error == MPI_SUCCESS) error = MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
  if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN);
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(ranks, &functions.rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(ranks, &functions.size);
  if (error != MPI_SUCCESS) return error;
  MPI_Comm neighbours = MPI_COMM_NULL;
  error = MPI_Comm_split_type(ranks, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours);
  if (error != MPI_SUCCESS) return error;
  int count = 0;
  MPI_Comm_size(neighbours, &count);
  MPI_Comm_rank(neighbours, &functions.local_rank);
  MPI_Comm_free(&neighbours);
  // Machines may have different numbers of ranks, so all ranks must agree.
  int here = count == functions.size;
  error = MPI_Allreduce(&here, &functions.one_host, 1, MPI_INT, MPI_MIN, ranks);
  return error;
}

}  // namespace

const EspalierMpi* espalier_mpi_open(char* error, size_t bytes) {
  if (ranks == MPI_COMM_NULL)
    if (const int code = open_ranks(); code != MPI_SUCCESS) {
      describe(code, error, bytes);
      return nullptr;
    }
  return &functions;
}
