// The C interface of the library that calls MPI. It is loaded at run time, so programs that use no MPI are
// not linked to it, and an Espalier built without MPI can find it later.
#pragma once
#include <cstddef>

extern "C" {

/// A message to or from another rank.
struct EspalierMpiMessage {
  int peer;
  int receives;
  void* data;
  size_t bytes;  // less than 2^31
};

/// Functions return 0 or an MPI error. One set of messages is under way at a time; one thread calls.
struct EspalierMpi {
  int version;
  int rank, size;
  int local_rank;  // among the ranks on this machine
  int one_host;    // whether all ranks run on one machine
  int (*start)(const EspalierMpiMessage* messages, size_t count);
  int (*test)(int* done);
  /// Lets MPI send what it has buffered while no message is under way.
  void (*progress)();
  /// Cancels the messages under way; their memory must stay allocated.
  void (*abandon)();
  void (*describe)(int error, char* text, size_t bytes);
  /// Finalizes MPI, if this library initialized it.
  void (*finish)();
};

/// Initializes MPI, unless the program did. Returns null and a message on failure.
const EspalierMpi* espalier_mpi_open(char* error, size_t bytes);
}

inline constexpr int espalier_mpi_version = 3;
