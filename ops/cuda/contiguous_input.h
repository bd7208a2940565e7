// Inputs as kernels want them that read rows one after another.
#pragma once
#include "espalier/core/tensor.h"

namespace espalier::cu {

/// A tensor without gaps: the input itself, or a copy that each run makes anew.
class ContiguousInput {
 public:
  explicit ContiguousInput(const Tensor& input) : input_(&input) {
    if (!input.contiguous()) copy_ = Tensor(input.shape(), input.dtype(), input.device());
  }

  /// To be called before the kernels that read it.
  void refresh() {
    if (copy_.defined()) copy_elements(*input_, copy_);
  }
  const void* address() const { return copy_.defined() ? copy_.address() : input_->address(); }

 private:
  const Tensor* input_;
  Tensor copy_;
};

}  // namespace espalier::cu
