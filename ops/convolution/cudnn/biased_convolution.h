// A convolution with what is added to it, and ReLU, in one call of cuDNN.
#pragma once
#include "espalier/ops/convolution/cudnn/cudnn_convolution.h"

namespace espalier::cu {

/// y = activation(convolution + residual + bias), with a bias for each channel.
struct BiasedForm {
  bool residual = false;  ///< lies as y does
  bool relu = false;
};

/// In float32 or 16 bits.
class BiasedConvolution : public CudnnConvolution {
 public:
  /// By the algorithm that a CudnnConvolution has. Throws UnsupportedError as that does, and unless a trial
  /// has shown that the library computes this with it, and that ReLU of NaN is NaN; where MeasuringScope does
  /// not ask for trials, earlier ones count.
  BiasedConvolution(const ConvolutionSizes& sizes, const BiasedForm& form, DType dtype, Workspace workspace,
                    cudnnTensorFormat_t format);

  /// Launches only.
  void run(const void* x, const void* kernels, const void* bias, const void* residual, void* y) const;

 private:
  bool is_supported() const;
  bool is_computed_in_trial() const;
  cudnnStatus_t call(const void* x, const void* kernels, const void* bias, const void* residual, void* y,
                     void* room) const;

  BiasedForm form_;
  CudnnPointer<cudnnTensorDescriptor_t> bias_;
  CudnnPointer<cudnnActivationDescriptor_t> activation_;
};

}  // namespace espalier::cu
