#include "espalier/ops/convolution/cudnn/biased_convolution.h"

#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/error.h"
#include "espalier/ops/convolution/cudnn/descriptors.h"
#include "espalier/ops/matmul/cuda/measuring.h"

namespace espalier::cu {

namespace {

/// What trials have shown, by device and case, for the process.
struct Trials {
  std::mutex mutex;
  std::map<std::vector<int64_t>, bool> results;
};
Trials& trials() {
  static auto* all = new Trials;
  return *all;
}
constexpr size_t most_trials = 4096;

bool is_refused(cudnnStatus_t status) {
  const int kind = status / 1000;
  return kind == CUDNN_STATUS_NOT_SUPPORTED / 1000 || kind == CUDNN_STATUS_BAD_PARAM / 1000;
}

}  // namespace

BiasedConvolution::BiasedConvolution(const ConvolutionSizes& sizes, const BiasedForm& form, DType dtype,
                                     Workspace workspace, cudnnTensorFormat_t format)
    : CudnnConvolution(sizes, ConvolutionResult::y, dtype, std::move(workspace), format), form_(form) {
  if (!form.relu && algorithm_.number != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
    throw UnsupportedError("cuDNN adds biases without ReLU by one algorithm only");
  std::vector<int> of_bias(places_ + 2, 1);
  of_bias[1] = static_cast<int>(sizes.groups * sizes.out_channels);
  bias_ = tensor_descriptor(dtype, CUDNN_TENSOR_NCHW, of_bias);
  activation_ = created(cudnn()->cudnnCreateActivationDescriptor, "cudnnCreateActivationDescriptor");
  check(cudnn()->cudnnSetActivationDescriptor(activation_.get(),
                                              form.relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY,
                                              CUDNN_PROPAGATE_NAN, 0),
        "cudnnSetActivationDescriptor");
  if (!is_supported()) throw UnsupportedError("cuDNN has no such convolution with biases");
}

bool BiasedConvolution::is_supported() const {
  std::vector<int64_t> key = this->key(true);
  for (const int64_t more : {int64_t{algorithm_.number}, int64_t{form_.residual}, int64_t{form_.relu}})
    key.push_back(more);
  {
    const std::lock_guard lock(trials().mutex);
    const auto found = trials().results.find(key);
    if (found != trials().results.end()) return found->second;
  }
  if (!MeasuringScope::wanted()) return false;
  bool computed = false;
  try {
    computed = is_computed_in_trial();
  } catch (const OutOfMemory&) {  // the operands of the trial do not fit beside the plan
    return false;
  }
  const std::lock_guard lock(trials().mutex);
  if (trials().results.size() >= most_trials) trials().results.clear();
  return trials().results[key] = computed;
}

bool BiasedConvolution::is_computed_in_trial() const {
  const TrialOperands operands = trial_operands();
  const Device device = gpu(current_device());
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor bias = full({sizes_.groups * sizes_.out_channels}, nan, dtype_).to(device);
  Tensor residual({form_.residual ? operands.y.elements() : 0}, dtype_, device);
  zero_elements(residual);
  const Tensor room({static_cast<int64_t>(algorithm_.workspace)}, DType::boolean, device);
  {
    // The library may load its kernels; before the handle, which captures wait for.
    const NoCaptureScope alone;
    const cudnnStatus_t status =
        call(operands.x.address(), operands.kernels.address(), bias.address(),
             form_.residual ? residual.address() : nullptr, operands.y.address(), room.address());
    if (is_refused(status)) return false;
    check(status, "cudnnConvolutionBiasActivationForward");
    check(cudaStreamSynchronize(current_stream()), "cudaStreamSynchronize");
  }
  return std::isnan(operands.y.slice(0, 0, 1).to(cpu()).item());
}

cudnnStatus_t BiasedConvolution::call(const void* x, const void* kernels, const void* bias,
                                      const void* residual, void* y, void* room) const {
  const float one = 1, of_residual = form_.residual ? 1 : 0;
  const CudnnCall call;
  return cudnn()->cudnnConvolutionBiasActivationForward(
      call.handle(), &one, x_.get(), x, kernels_.get(), kernels, convolution_.get(),
      static_cast<cudnnConvolutionFwdAlgo_t>(algorithm_.number), room, algorithm_.workspace, &of_residual,
      y_.get(), residual ? residual : y, bias_.get(), bias, activation_.get(), y_.get(), y);
}

void BiasedConvolution::run(const void* x, const void* kernels, const void* bias, const void* residual,
                            void* y) const {
  check(call(x, kernels, bias, residual, y, workspace_.defined() ? workspace_.address() : nullptr),
        "cudnnConvolutionBiasActivationForward");
}

}  // namespace espalier::cu
