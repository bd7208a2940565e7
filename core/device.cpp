#include "espalier/core/device.h"

#include <fmt/format.h>

#include <ostream>

#include "espalier/core/backends.h"
#include "espalier/core/cuda_stream.h"
#include "espalier/core/error.h"

namespace espalier {

std::string Device::str() const {
  return fmt::format("{}:{}", type == DeviceType::cpu ? "cpu" : "cuda", index);
}

std::ostream& operator<<(std::ostream& out, const Device& device) { return out << device.str(); }

Device cpu(int index) {
  if (index < 0) throw DeviceError(fmt::format("cpu: there is no device with index {}", index));
  return {DeviceType::cpu, index};
}

Device gpu(int index) {
  if (index < 0) throw DeviceError(fmt::format("gpu: there is no device with index {}", index));
  return {DeviceType::cuda, index};
}

const Backends& backends() {
  static const Backends* const all = new Backends(make_backends());  // outlive every tensor, static ones too
  return *all;
}

std::vector<Device> all_gpus() {
  const auto cuda = backends().find(DeviceType::cuda);
  return cuda == backends().end() ? std::vector<Device>() : cuda->second.devices();
}

Backend& backend(Device device) {
  if (device.type == DeviceType::cpu) return cpu_backend();
  if (const auto known = backends().find(device.type); known != backends().end())
    return known->second.open(device);
  throw DeviceError(
      fmt::format("{} cannot be used: this build of Espalier has no CUDA backend", device.str()));
}

std::unique_ptr<BoundKernel> bind_kernel(const Op& op, const KernelCall& call, const BindContext& context) {
  return backend(call.outputs[0]->device()).bind(op, call, context);
}

void synchronize(Device device) { backend(device).synchronize(device); }

MemoryStats memory_stats(Device device) { return backend(device).memory_stats(device); }
void reset_peak_memory(Device device) { backend(device).reset_peak_memory(device); }
void release_cached_memory(Device device) { backend(device).release_cached_memory(device); }

void set_memory_limit(Device device, int64_t bytes, std::source_location where) {
  located(where, [&] {
    if (bytes < 0) throw Error(fmt::format("set_memory_limit: {} bytes are no limit", bytes));
    backend(device).set_memory_limit(device, bytes);
  });
}

CUstream_st* cuda_stream(Device device, std::source_location where) {
  return located(where, [&] {
    if (device.type != DeviceType::cuda)
      throw DeviceError(fmt::format("cuda_stream: {} is no GPU", device.str()));
    return static_cast<CUstream_st*>(backend(device).stream(device));
  });
}

}  // namespace espalier
