// The CUDA backend, or, in a build without it, the reason why there is none.
#pragma once
#include <string>
#include <vector>

#include "espalier/core/device.h"

namespace espalier {

/// Every GPU that can be used; empty without a driver, without a GPU, or without the backend.
std::vector<Device> cuda_devices();
/// Throws DeviceError saying why that device cannot be used.
Backend& cuda_backend(Device device);

}  // namespace espalier
