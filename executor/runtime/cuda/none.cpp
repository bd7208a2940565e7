// CUDA sessions in builds without CUDA.
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/executor/runtime/session.h"

namespace espalier {

std::unique_ptr<Session> make_cuda_session(Device device, Launch) {
  (void)backend(device);  // throws the reason
  throw DeviceError("this build of Espalier has no CUDA runtime");
}

}  // namespace espalier
