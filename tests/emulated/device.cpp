// Errors, versions and the devices themselves.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "cuda.h"
#include "runtime.h"

using namespace emulated;

namespace {

cudaError_t check_device(const Runtime& r, int device) {
  return device >= 0 && static_cast<size_t>(device) < r.devices.size() ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaDeviceProp properties_of(const Runtime& r, int device) {
  cudaDeviceProp p{};
  std::strcpy(p.name, "emulated");
  std::memcpy(p.uuid.bytes, "espalier emulate", 16);
  p.uuid.bytes[15] = static_cast<char>('0' + device);
  p.totalGlobalMem = r.memory;
  p.sharedMemPerBlock = 49152;
  p.regsPerBlock = 65536;
  p.warpSize = 32;
  p.memPitch = 2147483647;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 2147483647;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.totalConstMem = 65536;
  p.major = 9;
  p.textureAlignment = 512;
  p.multiProcessorCount = r.multiprocessors;
  p.canMapHostMemory = 1;
  p.concurrentKernels = 1;
  p.pciBusID = device + 1;
  p.asyncEngineCount = 3;
  p.unifiedAddressing = 1;
  p.memoryBusWidth = 5120;
  p.l2CacheSize = 4 << 20;
  p.maxThreadsPerMultiProcessor = 2048;
  p.streamPrioritiesSupported = 1;
  p.sharedMemPerMultiprocessor = 233472;
  p.regsPerMultiprocessor = 65536;
  p.cooperativeLaunch = 1;
  p.sharedMemPerBlockOptin = 232448;
  p.maxBlocksPerMultiProcessor = 32;
  p.reservedSharedMemPerBlock = 1024;
  p.memoryPoolsSupported = 1;
  return p;
}

cudaError_t attribute_of(const cudaDeviceProp& p, cudaDeviceAttr attribute, int* value) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = p.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = p.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = p.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(p.sharedMemPerBlock); break;
    case cudaDevAttrTotalConstantMemory: *value = static_cast<int>(p.totalConstMem); break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
    case cudaDevAttrClockRate: *value = 1000000; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrIntegrated: *value = p.integrated; break;
    case cudaDevAttrCanMapHostMemory: *value = p.canMapHostMemory; break;
    case cudaDevAttrConcurrentKernels: *value = p.concurrentKernels; break;
    case cudaDevAttrMemoryClockRate: *value = 1000000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrAsyncEngineCount: *value = p.asyncEngineCount; break;
    case cudaDevAttrUnifiedAddressing: *value = p.unifiedAddressing; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrStreamPrioritiesSupported: *value = p.streamPrioritiesSupported; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(p.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = p.regsPerMultiprocessor; break;
    case cudaDevAttrManagedMemory: *value = p.managedMemory; break;
    case cudaDevAttrPageableMemoryAccess: *value = p.pageableMemoryAccess; break;
    case cudaDevAttrCooperativeLaunch: *value = p.cooperativeLaunch; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(p.sharedMemPerBlockOptin); break;
    case cudaDevAttrHostRegisterSupported: *value = 1; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = static_cast<int>(p.reservedSharedMemPerBlock);
      break;
    case cudaDevAttrMemoryPoolsSupported: *value = p.memoryPoolsSupported; break;
    default: return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  this_thread.last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  Runtime& r = runtime();
  const Call call;
  const auto device = static_cast<size_t>(this_thread.device);
  if (device < r.devices.size() && r.devices[device].error != cudaSuccess) return r.devices[device].error;
  return this_thread.last_error;
}

namespace {
CUresult primary_context_state(CUdevice device, unsigned* flags, int* active) {
  Runtime& r = runtime();
  const Call call;
  if (device < 0 || static_cast<size_t>(device) >= r.devices.size()) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = r.devices[static_cast<size_t>(device)].context;
  return CUDA_SUCCESS;
}
}  // namespace

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result) {
  return api("cudaGetDriverEntryPointByVersion", Needs::Nothing, [&](Runtime&, Call&) {
    if (symbol == nullptr || function == nullptr || flags != cudaEnableDefault) return cudaErrorInvalidValue;
    const bool known = std::string(symbol) == "cuDevicePrimaryCtxGetState";
    *function = known && version >= 7000 ? reinterpret_cast<void*>(&primary_context_state) : nullptr;
    if (result != nullptr)
      *result = !known            ? cudaDriverEntryPointSymbolNotFound
                : version >= 7000 ? cudaDriverEntryPointSuccess
                                  : cudaDriverEntryPointVersionNotSufficent;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  return api("cudaGetDeviceCount", Needs::Nothing, [&](Runtime& r, Call&) {
    *count = static_cast<int>(r.devices.size());
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
  });
}
cudaError_t cudaGetDevice(int* device) {
  return api("cudaGetDevice", Needs::Nothing, [&](Runtime& r, Call&) {
    *device = this_thread.device;
    return r.devices.empty() ? cudaErrorNoDevice : cudaSuccess;
  });
}
cudaError_t cudaSetDevice(int device) {
  return api("cudaSetDevice", Needs::Nothing, [&](Runtime& r, Call&) {
    if (r.devices.empty()) return cudaErrorNoDevice;
    const cudaError_t error = check_device(r, device);
    if (error != cudaSuccess) return error;
    this_thread.device = device;
    r.devices[static_cast<size_t>(device)].context = true;  // since CUDA 12
    return cudaSuccess;
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return api("cudaGetDeviceProperties", Needs::Device, [&](Runtime& r, Call&) {
    const cudaError_t error = check_device(r, device);
    if (error == cudaSuccess) *properties = properties_of(r, device);
    return error;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return api("cudaDeviceGetAttribute", Needs::Device, [&](Runtime& r, Call&) {
    const cudaError_t error = check_device(r, device);
    return error != cudaSuccess ? error : attribute_of(properties_of(r, device), attribute, value);
  });
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return api("cudaDeviceGetPCIBusId", Needs::Device, [&](Runtime& r, Call&) {
    const cudaError_t error = check_device(r, device);
    if (error != cudaSuccess) return error;
    const int written = std::snprintf(id, static_cast<size_t>(length), "0000:%02X:00.0", device + 1);
    return written < length ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return api("cudaDeviceGetStreamPriorityRange", Needs::Device, [&](Runtime&, Call&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return api("cudaDeviceCanAccessPeer", Needs::Device, [&](Runtime& r, Call&) {
    if (check_device(r, device) != cudaSuccess || check_device(r, peer) != cudaSuccess)
      return cudaErrorInvalidDevice;
    *can = device != peer && r.peers;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return api("cudaDeviceEnablePeerAccess", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    if (flags != 0) return cudaErrorInvalidValue;
    if (check_device(r, peer) != cudaSuccess || peer == this_thread.device) return cudaErrorInvalidDevice;
    if (!r.peers) return cudaErrorPeerAccessUnsupported;
    auto& peers = r.devices[static_cast<size_t>(this_thread.device)].peers;
    return peers.insert(peer).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return api("cudaDeviceDisablePeerAccess", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    auto& peers = r.devices[static_cast<size_t>(this_thread.device)].peers;
    return peers.erase(peer) > 0 ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
  });
}
cudaError_t cudaDeviceSynchronize() {
  return api("cudaDeviceSynchronize", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    // A device encompasses the captures of all threads on it, whatever their modes.
    cudaError_t error = r.forbid_in_capture();
    for (const auto& capture : r.captures)
      if (capture->origin->device == this_thread.device)
        error = r.invalidate(capture, cudaErrorStreamCaptureUnsupported);
    if (error != cudaSuccess) return error;
    ++r.counters.synchronizations;
    r.run_device(call, this_thread.device);
    return r.check_guards(this_thread.device);
  });
}
cudaError_t cudaDeviceReset() {
  return api("cudaDeviceReset", Needs::Context, [&](Runtime& r, Call& call) {
    r.run_device(call, this_thread.device);
    for (auto it = r.allocations.begin(); it != r.allocations.end();) {
      const auto here = it++;
      if (here->second.device == this_thread.device && here->second.memory == Memory::Device)
        r.release(reinterpret_cast<void*>(here->first), false);
    }
    r.devices[static_cast<size_t>(this_thread.device)].error = cudaSuccess;
    r.devices[static_cast<size_t>(this_thread.device)].context = false;
    this_thread.last_error = cudaSuccess;
    return cudaSuccess;
  });
}
