// The narrow door to MPI. All that needs mpi.h is one small library, which is loaded at run time and speaks
// plain C: so programs that use no MPI are not linked to it, and an Espalier built without MPI finds it
// later.
#pragma once
#include <cstddef>

extern "C" {

/// What a rank sends to, or receives from, another.
struct EspalierMpiMessage {
  int peer;
  int receives;
  void* data;
  size_t bytes;  // less than 2^31
};

/// Functions give 0, or an error of MPI's. One set of messages is under way at a time, and one thread calls.
struct EspalierMpi {
  int version;
  int rank, size;
  int one_host;  // whether all ranks run on one machine
  int (*start)(const EspalierMpiMessage* messages, size_t count);
  int (*test)(int* done);
  /// Lets what is buffered go on its way while nothing is under way.
  void (*progress)();
  /// Gives up what is under way; its memory must stay.
  void (*abandon)();
  void (*describe)(int error, char* text, size_t bytes);
  /// Ends MPI, if it was begun here.
  void (*finish)();
};

/// Begins MPI, unless the program did; 0 and a text if that fails.
const EspalierMpi* espalier_mpi_open(char* error, size_t bytes);
}

inline constexpr int espalier_mpi_version = 2;
