#include "espalier/core/device.h"

#include <fmt/format.h>

#include <ostream>

#include "espalier/core/cuda/backend.h"
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

std::vector<Device> all_gpus() { return cuda_devices(); }

Backend& backend(Device device) {
  return device.type == DeviceType::cpu ? cpu_backend() : cuda_backend(device);
}

void synchronize(Device device) { backend(device).synchronize(device); }

MemoryStats memory_stats(Device device) { return backend(device).memory_stats(device); }
void reset_peak_memory(Device device) { backend(device).reset_peak_memory(device); }
void release_cached_memory(Device device) { backend(device).release_cached_memory(device); }

}  // namespace espalier
