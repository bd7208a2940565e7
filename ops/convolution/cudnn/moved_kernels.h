// Kernels of convolutions in the order that cuDNN's channels-last format has.
#pragma once
#include <algorithm>

#include "espalier/core/channels_last.h"
#include "espalier/core/workspace.h"

namespace espalier::cu {

/// Memory for the kernels of a convolution with the channels last, which have them second themselves.
class MovedKernels {
 public:
  MovedKernels(const Tensor& like, Workspace& workspace)
      : memory_(workspace.take(with_channels_last(like.shape()), like.dtype(), like.device())) {
    Layout layout = memory_.layout();
    for (Dims* list : {&layout.shape.dims(), &layout.strides})
      std::rotate(list->begin() + 1, list->end() - 1, list->end());
    seen_ = Tensor(memory_.storage(), layout, memory_.dtype());
  }

  void* address() const { return memory_.address(); }
  void read(const Tensor& kernels) { copy_elements(kernels, seen_); }
  void write(Tensor& kernels) const { copy_elements(seen_, kernels); }

 private:
  Tensor memory_, seen_;  ///< as the library has it, and with the channels second
};

}  // namespace espalier::cu
