// A build without CUDA: no plan is on a GPU.
#include "espalier/core/device.h"
#include "espalier/core/error.h"
#include "espalier/executor/cuda/communicator_devices.h"
#include "espalier/executor/cuda/exchange.h"
#include "espalier/executor/cuda/kernels.h"
#include "espalier/executor/session.h"

namespace espalier {

std::unique_ptr<Session> make_cuda_session(Device device, Launch) {
  (void)backend(device);  // says why there is none
  throw DeviceError("this build of Espalier has no CUDA runtime");
}

std::unique_ptr<Exchange> make_cuda_exchange(std::shared_ptr<Communicator>, Device device, bool) {
  (void)backend(device);
  throw DeviceError("this build of Espalier has no CUDA backend");
}

std::vector<std::shared_ptr<Communicator>> make_device_group(const std::vector<Device>& devices) {
  for (const Device& device : devices)
    if (device.type == DeviceType::cuda) (void)backend(device);  // says why there is none
  throw DeviceError("make_device_group: this build of Espalier has no CUDA backend");
}

namespace cu {

namespace {

[[noreturn]] Bound none() { throw DeviceError("this build of Espalier has no CUDA kernels"); }

}  // namespace

Bound bind_fused(const KernelCall&, const Program&) { none(); }
Bound bind_fused_group(const KernelCall&, std::span<const GroupMember>) { none(); }
Bound bind_matmul_update(const KernelCall&, MatmulForm) { none(); }
Bound bind_product_program(const KernelCall&, ProductProgram) { none(); }

}  // namespace cu

}  // namespace espalier
