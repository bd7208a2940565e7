#include "espalier/executor/communicators/nccl/nccl.h"

#include <fmt/format.h>

#include <type_traits>

#include "espalier/core/cuda/opened_library.h"
#include "espalier/core/error.h"

#ifndef ESPALIER_NCCL_BUILT
#define ESPALIER_NCCL_BUILT "libnccl.so.2"
#endif

namespace espalier::cu {

namespace {

// The signatures that the calls in this folder use.
using Reduce = ncclResult_t(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                            cudaStream_t);
static_assert(std::is_same_v<decltype(ncclAllReduce), Reduce>);
static_assert(std::is_same_v<decltype(ncclReduceScatter), Reduce>);
static_assert(std::is_same_v<decltype(ncclReduce), ncclResult_t(const void*, void*, size_t, ncclDataType_t,
                                                                ncclRedOp_t, int, ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(ncclAllGather), ncclResult_t(const void*, void*, size_t, ncclDataType_t,
                                                                   ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(ncclBroadcast), ncclResult_t(const void*, void*, size_t, ncclDataType_t,
                                                                   int, ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(ncclCommInitRankConfig),
                             ncclResult_t(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*)>);
static_assert(std::is_same_v<decltype(ncclCommGetAsyncError), ncclResult_t(ncclComm_t, ncclResult_t*)>);
static_assert(std::is_same_v<decltype(ncclCommAbort), ncclResult_t(ncclComm_t)>);

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace

OpenedNccl open_nccl() {
  const OpenedLibrary library("NCCL", "ESPALIER_NCCL_LIBRARY", {"libnccl.so.2", ESPALIER_NCCL_BUILT});
  OpenedNccl opened;
#define ESPALIER_NCCL_FUNCTION(name) library.find(opened.functions.name, #name);
  ESPALIER_NCCL_FUNCTIONS(ESPALIER_NCCL_FUNCTION)
#undef ESPALIER_NCCL_FUNCTION
  if (opened.functions.ncclGetVersion(&opened.version) != ncclSuccess || opened.version < NCCL_VERSION_CODE)
    throw UnsupportedError(fmt::format("{} is NCCL {}, and Espalier was compiled for {} or later",
                                       library.path(), version_text(opened.version),
                                       version_text(NCCL_VERSION_CODE)));
  return opened;
}

namespace {

// A static that throws is initialized again at the next call.
const OpenedNccl& opened() {
  static const OpenedNccl library = open_nccl();
  return library;
}

}  // namespace

const Nccl& nccl() { return opened().functions; }
int nccl_version() { return opened().version; }

std::string describe(ncclResult_t result, ncclComm_t comm) {
  std::string text = nccl().ncclGetErrorString(result);
  const char* last = nccl().ncclGetLastError(comm);
  if (last && *last) text += fmt::format(": {}", last);
  return text;
}

void check(ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw DeviceError(fmt::format("{} failed ({})", what, describe(result)));
}

}  // namespace espalier::cu
