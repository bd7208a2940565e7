// A convolution, or one of its gradients, by cuDNN.
#pragma once
#include <vector>

#include "espalier/core/workspace.h"
#include "espalier/ops/convolution/convolution_primitive.h"
#include "espalier/ops/convolution/cudnn/cudnn.h"

namespace espalier::cu {

/// An algorithm by its number in the enumeration of its routine.
struct CudnnAlgorithm {
  int number = 0;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  size_t workspace = 0;
};

class CudnnConvolution {
 public:
  /// For contiguous tensors of the current device; by CUDNN_TENSOR_NHWC the channels are the last axis, also
  /// of the kernels, [channels of the result, sizes…, channels]. The algorithm repeats its results bit by
  /// bit; it is the fastest by measurement where MeasuringScope asks for that, else the library's first
  /// suggestion. Throws UnsupportedError if the library is not there, or has no algorithm: for padding that
  /// differs at the ends of an axis, for tensors of more than 2^31 elements.
  CudnnConvolution(const ConvolutionSizes& sizes, ConvolutionResult result, DType dtype, Workspace workspace,
                   cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW);

  /// Launches only: reads two of the tensors and writes the third.
  void run(void* x, void* kernels, void* y) const;

 protected:
  struct TrialOperands {
    Tensor x, kernels, y;
  };
  /// Zeros, to try a call with. Throws OutOfMemory.
  TrialOperands trial_operands() const;
  /// Differs for other devices, cases, and ways to choose.
  std::vector<int64_t> key(bool measured) const;

  ConvolutionSizes sizes_;
  ConvolutionResult result_;
  DType dtype_;
  cudnnTensorFormat_t format_;
  bool ieee_;  ///< no tensor cores
  CudnnPointer<cudnnTensorDescriptor_t> x_, y_;
  CudnnPointer<cudnnFilterDescriptor_t> kernels_;
  CudnnPointer<cudnnConvolutionDescriptor_t> convolution_;
  CudnnAlgorithm algorithm_;
  Tensor workspace_;
  size_t places_;  ///< axes of the library beside batch and channels

 private:
  CudnnAlgorithm choose(int64_t limit) const;
  CudnnAlgorithm suggested(size_t limit) const;
  CudnnAlgorithm measured(size_t limit) const;
};

}  // namespace espalier::cu
