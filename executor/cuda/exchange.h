// Exchange on a GPU: beside the plan's own stream.
#pragma once
#include "espalier/executor/exchange.h"

namespace espalier {

/// Values are sent in a stream of their own, as soon as the plan's stream has completed them, and the plan's
/// stream waits for them when it needs them. `captured`: the communicator's collectives can be part of a CUDA
/// graph; otherwise plans are cut into graphs around them. Throws DeviceError where there is no such GPU.
std::unique_ptr<Exchange> make_cuda_exchange(std::shared_ptr<Communicator> communicator, Device device,
                                             bool captured);

}  // namespace espalier
