// The descriptors of the emulated cuDNN, and what fits together.
#pragma once
#include <cstddef>
#include <vector>

#include "cudnn.h"
#include "espalier/core/half.h"
#include "runtime.h"

struct cudnnContext {
  int device;
  cudaStream_t stream = nullptr;
  bool has_stream = false;
};
struct cudnnTensorStruct {
  cudnnDataType_t type{};
  std::vector<int> sizes, strides;
};
struct cudnnFilterStruct {
  cudnnDataType_t type{};
  cudnnTensorFormat_t format{};
  std::vector<int> sizes;
};
struct cudnnConvolutionStruct {
  std::vector<int> padding, stride, dilation;
  int groups = 1;
  cudnnDataType_t compute{};
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};
struct cudnnActivationStruct {
  bool is_set = false;
  cudnnActivationMode_t mode{};
  cudnnNanPropagation_t of_nan{};
};

namespace emulated {

using espalier::BFloat16;
using espalier::Float16;

inline size_t bytes_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
}
inline size_t product(const std::vector<int>& sizes) {
  size_t all = 1;
  for (const int size : sizes) all *= static_cast<size_t>(size);
  return all;
}
/// Of [batch, channels, sizes…], fully packed.
inline std::vector<int> packed_strides(const std::vector<int>& sizes, cudnnTensorFormat_t format) {
  std::vector<int> strides(sizes.size(), 1);
  int step = 1;
  const auto next = [&](size_t axis) {
    strides[axis] = step;
    step *= sizes[axis];
  };
  if (format == CUDNN_TENSOR_NHWC) next(1);
  for (size_t i = sizes.size(); i-- > 2;) next(i);
  if (format == CUDNN_TENSOR_NCHW) next(1);
  next(0);
  return strides;
}
inline bool is_packed(const cudnnTensorStruct& x, cudnnTensorFormat_t format) {
  return x.strides == packed_strides(x.sizes, format);
}

inline cudnnStatus_t fit(const cudnnTensorStruct* x, const cudnnFilterStruct* w,
                         const cudnnConvolutionStruct* c, const cudnnTensorStruct* y) {
  if (!x || !w || !c || !y) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  const size_t rank = x->sizes.size();
  if (rank < 4 || rank > 5 || w->sizes.size() != rank || y->sizes.size() != rank ||
      c->padding.size() != rank - 2)
    return CUDNN_STATUS_BAD_PARAM;
  if (x->type != w->type || x->type != y->type) return CUDNN_STATUS_BAD_PARAM;
  if (c->compute != (x->type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT))
    return CUDNN_STATUS_NOT_SUPPORTED;
  // Kernels with the channels last are for tensors that have them last, too, of at most 32 bits.
  if (w->format == CUDNN_TENSOR_NHWC && x->type == CUDNN_DATA_DOUBLE) return CUDNN_STATUS_NOT_SUPPORTED;
  if (!is_packed(*x, w->format) || !is_packed(*y, w->format)) return CUDNN_STATUS_NOT_SUPPORTED;
  if (x->sizes[1] != w->sizes[1] * c->groups || w->sizes[0] % c->groups != 0 || y->sizes[0] != x->sizes[0] ||
      y->sizes[1] != w->sizes[0])
    return CUDNN_STATUS_BAD_PARAM;
  for (size_t i = 2; i < rank; ++i) {
    const int span = (w->sizes[i] - 1) * c->dilation[i - 2] + 1,
              free = x->sizes[i] + 2 * c->padding[i - 2] - span;
    if (free < 0 || free / c->stride[i - 2] + 1 != y->sizes[i]) return CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace emulated
