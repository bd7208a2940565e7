#include "espalier/ops/convolution/cudnn/descriptors.h"

#include "espalier/core/error.h"

namespace espalier::cu {

namespace {

cudnnDataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return CUDNN_DATA_FLOAT;
    case DType::float64: return CUDNN_DATA_DOUBLE;
    case DType::float16: return CUDNN_DATA_HALF;
    case DType::bfloat16: return CUDNN_DATA_BFLOAT16;
    default: throw UnsupportedError("cuDNN convolves reals");
  }
}

std::vector<int> packed_strides(const std::vector<int>& sizes, cudnnTensorFormat_t format) {
  const bool channels_last = format == CUDNN_TENSOR_NHWC;
  std::vector<int> strides(sizes.size(), 1);
  int step = channels_last ? sizes[1] : 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (channels_last && i == 1) continue;
    strides[i] = step;
    step *= sizes[i];
  }
  return strides;
}

}  // namespace

CudnnPointer<cudnnTensorDescriptor_t> tensor_descriptor(DType dtype, cudnnTensorFormat_t format,
                                                        const std::vector<int>& sizes) {
  auto made = created(cudnn()->cudnnCreateTensorDescriptor, "cudnnCreateTensorDescriptor");
  const std::vector<int> strides = packed_strides(sizes, format);
  check(cudnn()->cudnnSetTensorNdDescriptor(made.get(), cudnn_type(dtype), static_cast<int>(sizes.size()),
                                            sizes.data(), strides.data()),
        "cudnnSetTensorNdDescriptor");
  return made;
}

CudnnPointer<cudnnFilterDescriptor_t> filter_descriptor(DType dtype, cudnnTensorFormat_t format,
                                                        const std::vector<int>& sizes) {
  auto made = created(cudnn()->cudnnCreateFilterDescriptor, "cudnnCreateFilterDescriptor");
  check(cudnn()->cudnnSetFilterNdDescriptor(made.get(), cudnn_type(dtype), format,
                                            static_cast<int>(sizes.size()), sizes.data()),
        "cudnnSetFilterNdDescriptor");
  return made;
}

}  // namespace espalier::cu
