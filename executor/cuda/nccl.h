// NCCL's functions, found when they are first needed: no program is linked with it.
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
  X(ncclCommDestroy)               \
  X(ncclCommAbort)                 \
  X(ncclGroupStart)                \
  X(ncclGroupEnd)                  \
  X(ncclAllReduce)                 \
  X(ncclReduce)                    \
  X(ncclReduceScatter)             \
  X(ncclAllGather)                 \
  X(ncclBroadcast)

/// Under their own names, each of the type that nccl.h declares.
struct Nccl {
#define ESPALIER_NCCL_FUNCTION(name) decltype(&::name) name = nullptr;
  ESPALIER_NCCL_FUNCTIONS(ESPALIER_NCCL_FUNCTION)
#undef ESPALIER_NCCL_FUNCTION
};

/// Opens what ESPALIER_NCCL_LIBRARY names, or else libnccl.so.2 where the loader finds it or the build did.
/// Throws UnsupportedError if there is none, or it is older than the headers that this was compiled with.
struct OpenedNccl {
  Nccl functions;
  int version = 0;
};
OpenedNccl open_nccl();
/// What was opened when it was first asked for; it throws likewise, and looks anew the next time.
const Nccl& nccl();
/// What it says of itself: 22809 is 2.28.9. Throws UnsupportedError as nccl() does.
int nccl_version();

/// Throws DeviceError unless that is success, or under way. `what` names the call.
void check(ncclResult_t result, const char* what);
/// "unhandled cuda error: ...", with what NCCL said last.
std::string describe(ncclResult_t result, ncclComm_t comm = nullptr);

}  // namespace espalier::cu
