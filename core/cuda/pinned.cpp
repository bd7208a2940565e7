#include "espalier/core/cuda/pinned.h"

#include <fmt/format.h>

#include "espalier/core/cuda/runtime.h"

namespace espalier::cu {

PinnedBuffer::PinnedBuffer(size_t bytes) : bytes_(bytes) {
  if (bytes)
    check(cudaHostAlloc(&data_, bytes, cudaHostAllocPortable),
          fmt::format("page-locking {} bytes of host memory", bytes));
}

PinnedBuffer::~PinnedBuffer() {
  if (data_) (void)cudaFreeHost(data_);
}

}  // namespace espalier::cu
