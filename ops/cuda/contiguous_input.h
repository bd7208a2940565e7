// Contiguous inputs for kernels that require them.
#pragma once
#include "espalier/core/tensor.h"

namespace espalier::cu {

/// The input if it is contiguous, else a copy that each run renews.
class ContiguousInput {
 public:
  explicit ContiguousInput(const Tensor& input) : input_(&input) {
    if (!input.contiguous()) copy_ = Tensor(input.shape(), input.dtype(), input.device());
  }

  /// Renews the copy. Call it before the kernels that read the address.
  void refresh() {
    if (copy_.defined()) copy_elements(*input_, copy_);
  }
  const void* address() const { return copy_.defined() ? copy_.address() : input_->address(); }

 private:
  const Tensor* input_;
  Tensor copy_;
};

}  // namespace espalier::cu
