// Descriptors of cuDNN.
#pragma once
#include <vector>

#include "espalier/core/dtype.h"
#include "espalier/ops/convolution/cudnn/cudnn.h"

namespace espalier::cu {

/// `create` is a function of the library, and `what` its name.
template <class T>
CudnnPointer<T> created(cudnnStatus_t (*create)(T*), const char* what) {
  T made = nullptr;
  check(create(&made), what);
  return CudnnPointer<T>(made);
}

/// Of a packed tensor of reals, [batch, channels, sizes…], whatever the order in memory.
CudnnPointer<cudnnTensorDescriptor_t> tensor_descriptor(DType dtype, cudnnTensorFormat_t format,
                                                        const std::vector<int>& sizes);
CudnnPointer<cudnnFilterDescriptor_t> filter_descriptor(DType dtype, cudnnTensorFormat_t format,
                                                        const std::vector<int>& sizes);

}  // namespace espalier::cu
