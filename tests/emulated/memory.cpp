// Device memory and pinned host memory: each allocation is registered, filled with a pattern, and surrounded
// by guards.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime.h"

namespace emulated {
namespace {

constexpr unsigned char uninitialized = 0xCB;
constexpr unsigned char guard = 0xCD;
constexpr size_t guard_bytes = 256;  // and the alignment

uintptr_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

bool intact(const unsigned char* bytes) {
  return std::all_of(bytes, bytes + guard_bytes, [](unsigned char byte) { return byte == guard; });
}
bool intact(uintptr_t address, const Allocation& allocation) {
  const auto* begin = reinterpret_cast<const unsigned char*>(address);
  return allocation.block == nullptr || (intact(begin - guard_bytes) && intact(begin + allocation.bytes));
}

}  // namespace

const Allocation* Runtime::find(const void* pointer, size_t bytes) const {
  auto next = allocations.upper_bound(address_of(pointer));
  if (next == allocations.begin()) return nullptr;
  const auto& [begin, allocation] = *--next;
  const uintptr_t offset = address_of(pointer) - begin;
  if (offset > allocation.bytes || bytes > allocation.bytes - offset) return nullptr;
  return offset == allocation.bytes && bytes == 0 && allocation.bytes > 0 ? nullptr : &allocation;
}

cudaError_t Runtime::allocate(void** pointer, size_t bytes, Memory kind, int device) {
  if (pointer == nullptr) return cudaErrorInvalidValue;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  DeviceState& state = devices[static_cast<size_t>(device)];
  const bool on_device = kind == Memory::Device;
  if (on_device && (bytes > memory || state.used + bytes > memory)) return cudaErrorMemoryAllocation;
  const size_t rounded = (bytes + guard_bytes - 1) / guard_bytes * guard_bytes;
  const DeviceRegion::Open open(region);
  auto* block =
      static_cast<unsigned char*>(on_device ? region.allocate(rounded + 2 * guard_bytes)
                                            : std::aligned_alloc(guard_bytes, rounded + 2 * guard_bytes));
  if (block == nullptr) return cudaErrorMemoryAllocation;
  std::memset(block, guard, guard_bytes);
  std::memset(block + guard_bytes, uninitialized, bytes);
  std::memset(block + guard_bytes + bytes, guard, rounded - bytes + guard_bytes);
  *pointer = block + guard_bytes;
  allocations[address_of(*pointer)] = {kind, device, bytes, block};
  if (on_device) {
    state.used += bytes;
    ++counters.allocations;
  }
  return cudaSuccess;
}

cudaError_t Runtime::release(void* pointer, bool pinned) {
  const auto it = allocations.find(address_of(pointer));
  const Memory kind = pinned ? Memory::Pinned : Memory::Device;
  if (it == allocations.end() || it->second.memory != kind)
    return complain(cudaErrorInvalidValue, "memory is freed which was not allocated, or as another kind");
  const Allocation allocation = it->second;
  const DeviceRegion::Open open(region);
  const bool fine = intact(it->first, allocation);
  if (!pinned) devices[static_cast<size_t>(allocation.device)].used -= allocation.bytes;
  allocations.erase(it);
  if (pinned)
    std::free(allocation.block);
  else
    region.release(allocation.block);
  if (fine) return cudaSuccess;
  return devices[static_cast<size_t>(allocation.device)].error =
             complain(cudaErrorIllegalAddress,
                      "a write beyond an allocation of " + std::to_string(allocation.bytes) + " bytes");
}

cudaError_t Runtime::check_guards(int device) {
  const DeviceRegion::Open open(region);
  DeviceState& state = devices[static_cast<size_t>(device)];
  for (const auto& [address, allocation] : allocations)
    if (allocation.device == device && !intact(address, allocation) && state.error == cudaSuccess)
      state.error = complain(cudaErrorIllegalAddress, "a write beyond an allocation of " +
                                                          std::to_string(allocation.bytes) + " bytes");
  return state.error;
}

}  // namespace emulated

using namespace emulated;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return api("cudaMalloc", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    const cudaError_t error = r.forbid_in_capture();
    return error != cudaSuccess ? error : r.allocate(pointer, bytes, Memory::Device, this_thread.device);
  });
}
cudaError_t cudaFree(void* pointer) {
  return api("cudaFree", Needs::Context, [&](Runtime& r, Call& call) {
    if (pointer == nullptr) return cudaSuccess;
    const cudaError_t error = r.forbid_in_capture();
    if (error != cudaSuccess) return error;
    const Allocation* allocation = r.find(pointer);
    if (allocation != nullptr) r.run_device(call, allocation->device);
    return r.release(pointer, false);
  });
}
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t handle) {
  return api("cudaMallocAsync", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    const auto stream = r.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return r.invalidate(stream->capture, cudaErrorStreamCaptureUnsupported);
    return r.allocate(pointer, bytes, Memory::Device, stream->device);
  });
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t handle) {
  return api("cudaFreeAsync", Needs::HealthyDevice, [&](Runtime& r, Call& call) {
    const auto stream = r.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return r.invalidate(stream->capture, cudaErrorStreamCaptureUnsupported);
    const Allocation* allocation = r.find(pointer);
    if (allocation == nullptr || allocation->memory != Memory::Device) return cudaErrorInvalidValue;
    return r.enqueue(call, stream, {cudaGraphNodeTypeEmpty, stream->device, [&r, pointer] {
                                      return r.release(pointer, false);
                                    }});
  });
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return api("cudaMemGetInfo", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    *total = r.memory;
    *free = r.memory - r.devices[static_cast<size_t>(this_thread.device)].used;
    return cudaSuccess;
  });
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return api("cudaHostAlloc", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    const cudaError_t error = r.forbid_in_capture();
    return error != cudaSuccess ? error : r.allocate(pointer, bytes, Memory::Pinned, this_thread.device);
  });
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
cudaError_t cudaFreeHost(void* pointer) {
  return api("cudaFreeHost", Needs::Context, [&](Runtime& r, Call& call) {
    if (pointer == nullptr) return cudaSuccess;
    const cudaError_t error = r.forbid_in_capture();
    if (error != cudaSuccess) return error;
    for (size_t device = 0; device < r.devices.size(); ++device) r.run_device(call, static_cast<int>(device));
    return r.release(pointer, true);
  });
}
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
  return api("cudaHostRegister", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    if (pointer == nullptr || bytes == 0) return cudaErrorInvalidValue;
    if (r.find(pointer) != nullptr) return cudaErrorHostMemoryAlreadyRegistered;
    r.allocations[address_of(pointer)] = {Memory::Registered, this_thread.device, bytes, nullptr};
    return cudaSuccess;
  });
}
cudaError_t cudaHostUnregister(void* pointer) {
  return api("cudaHostUnregister", Needs::Context, [&](Runtime& r, Call& call) {
    for (size_t device = 0; device < r.devices.size(); ++device) r.run_device(call, static_cast<int>(device));
    const auto it = r.allocations.find(address_of(pointer));
    if (it == r.allocations.end() || it->second.memory != Memory::Registered)
      return cudaErrorHostMemoryNotRegistered;
    r.allocations.erase(it);
    return cudaSuccess;
  });
}
cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* pointer, unsigned) {
  return api("cudaHostGetDevicePointer", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    const Allocation* allocation = r.find(pointer);
    if (allocation == nullptr || allocation->memory == Memory::Device) return cudaErrorInvalidValue;
    *device_pointer = pointer;
    return cudaSuccess;
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return api("cudaPointerGetAttributes", Needs::HealthyDevice, [&](Runtime& r, Call&) {
    const Allocation* allocation = r.find(pointer);
    auto* p = const_cast<void*>(pointer);
    if (allocation == nullptr)
      *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, p};
    else if (allocation->memory == Memory::Device)
      *attributes = {cudaMemoryTypeDevice, allocation->device, p, nullptr};
    else
      *attributes = {cudaMemoryTypeHost, allocation->device, p, p};
    return cudaSuccess;
  });
}
