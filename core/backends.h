// Backends: the kinds of devices that a build can use.
#pragma once
#include <map>
#include <vector>

#include "espalier/core/kernel_registry.h"

namespace espalier {

/// What a kind of device beside the CPU brings.
struct BackendEntry {
  /// Throws DeviceError saying why that device cannot be used.
  Backend& (*open)(Device device);
  /// Those that can be used.
  std::vector<Device> (*devices)();
  KernelRegistry kernels;
};

using Backends = std::map<DeviceType, BackendEntry>;

/// All that this build has. Defined high (executor/backends.cpp), for kernels come from every folder.
Backends make_backends();
/// The same, made once.
const Backends& backends();

}  // namespace espalier
