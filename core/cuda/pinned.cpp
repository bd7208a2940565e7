#include "espalier/core/cuda/pinned.h"

#include <fmt/format.h>

#include "espalier/core/cuda/runtime.h"

namespace espalier::cu {

PinnedBuffer::PinnedBuffer(size_t bytes) : bytes_(bytes) {
  if (!bytes) return;
  device_ = current_device();
  check(cudaHostAlloc(&data_, bytes, cudaHostAllocPortable),
        fmt::format("page-locking {} bytes of host memory", bytes));
}

PinnedBuffer::~PinnedBuffer() {
  if (!data_) return;
  const DeviceScope device(device_, std::nothrow);
  (void)cudaFreeHost(data_);
}

}  // namespace espalier::cu
