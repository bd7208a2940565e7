// A build without CUDA.
#include <fmt/format.h>

#include "espalier/core/cuda/backend.h"
#include "espalier/core/error.h"

namespace espalier {

std::vector<Device> cuda_devices() { return {}; }

Backend& cuda_backend(Device device) {
  throw DeviceError(
      fmt::format("{} cannot be used: this build of Espalier has no CUDA backend", device.str()));
}

}  // namespace espalier
