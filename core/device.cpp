#include "espalier/core/device.h"

#include <fmt/format.h>

#include <ostream>

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

std::vector<Device> all_gpus() { return {}; }

Backend& backend(Device device) {
  if (device.type == DeviceType::cpu) return cpu_backend();
  throw DeviceError(
      fmt::format("{} cannot be used: this build of Espalier has no CUDA backend", device.str()));
}

MemoryStats memory_stats(Device device) { return backend(device).memory_stats(device); }
void reset_peak_memory(Device device) { backend(device).reset_peak_memory(device); }
void release_cached_memory(Device device) { backend(device).release_cached_memory(device); }

}  // namespace espalier
