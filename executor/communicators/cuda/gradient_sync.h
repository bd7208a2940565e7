// GradientSync on a GPU, in a stream beside that of the plan.
#pragma once
#include "espalier/executor/communicators/gradient_sync.h"

namespace espalier {

/// Values are sent in a stream of their own, as soon as the plan's stream has completed them; the plan's
/// stream waits for them where it needs them. `captured`: the communicator's collectives can be part of a
/// CUDA graph; otherwise plans are cut into graphs around them. Throws DeviceError where there is no such
/// GPU.
std::unique_ptr<GradientSync> make_cuda_gradient_sync(std::shared_ptr<Communicator> communicator,
                                                      Device device, bool captured);

}  // namespace espalier
