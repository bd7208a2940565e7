// A build without CUDA: no plan is on a GPU.
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/executor/runtime/session.h"

namespace espalier {

std::unique_ptr<Session> make_cuda_session(Device device, Launch) {
  (void)backend(device);  // says why there is none
  throw DeviceError("this build of Espalier has no CUDA runtime");
}

}  // namespace espalier
