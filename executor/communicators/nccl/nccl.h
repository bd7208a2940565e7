// NCCL's functions. The library is opened at run time, so programs are not linked to it.
#pragma once
#include <nccl.h>

#include <string>

namespace espalier::cu {

#define ESPALIER_NCCL_FUNCTIONS(X) \
  X(ncclGetVersion)                \
  X(ncclGetUniqueId)               \
  X(ncclGetErrorString)            \
  X(ncclGetLastError)              \
  X(ncclCommInitRankConfig)        \
  X(ncclCommGetAsyncError)         \
  X(ncclCommFinalize)              \
  X(ncclCommDestroy)               \
  X(ncclCommAbort)                 \
  X(ncclGroupStart)                \
  X(ncclGroupEnd)                  \
  X(ncclAllReduce)                 \
  X(ncclReduce)                    \
  X(ncclReduceScatter)             \
  X(ncclAllGather)                 \
  X(ncclBroadcast)

/// Pointers to the functions, with their types from nccl.h.
struct Nccl {
#define ESPALIER_NCCL_FUNCTION(name) decltype(&::name) name = nullptr;
  ESPALIER_NCCL_FUNCTIONS(ESPALIER_NCCL_FUNCTION)
#undef ESPALIER_NCCL_FUNCTION
};

/// Opens the library that ESPALIER_NCCL_LIBRARY names; else libnccl.so.2 in the loader's search path or at
/// the path known from the build. Throws UnsupportedError without a library, or if it is older than nccl.h.
struct OpenedNccl {
  Nccl functions;
  int version = 0;
};
OpenedNccl open_nccl();
/// The functions of the library, which the first call opens. After an error the next call tries again.
const Nccl& nccl();
/// The version of the library: 22809 is 2.28.9. Throws UnsupportedError as nccl() does.
int nccl_version();

/// Throws DeviceError unless the result is success or in progress. `what` names the call.
void check(ncclResult_t result, const char* what);
/// "unhandled cuda error: ...", with NCCL's last message.
std::string describe(ncclResult_t result, ncclComm_t comm = nullptr);

}  // namespace espalier::cu
