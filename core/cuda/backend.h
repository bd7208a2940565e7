// The CUDA backend, as it is registered.
#pragma once
#include <vector>

#include "espalier/core/device.h"

namespace espalier {

/// Throws DeviceError saying why that GPU cannot be used: without a driver or a GPU.
Backend& cuda_backend(Device device);
/// Every GPU that can be used.
std::vector<Device> cuda_devices();

}  // namespace espalier
