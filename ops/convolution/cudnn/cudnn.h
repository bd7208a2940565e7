// cuDNN's functions. The library is opened at run time, so programs are not linked to it.
#pragma once
#include <cudnn.h>

#include <memory>
#include <mutex>
#include <type_traits>

namespace espalier::cu {

#define ESPALIER_CUDNN_FUNCTIONS(X)                \
  X(cudnnGetVersion)                               \
  X(cudnnGetErrorString)                           \
  X(cudnnCreate)                                   \
  X(cudnnSetStream)                                \
  X(cudnnCreateTensorDescriptor)                   \
  X(cudnnDestroyTensorDescriptor)                  \
  X(cudnnSetTensorNdDescriptor)                    \
  X(cudnnCreateFilterDescriptor)                   \
  X(cudnnDestroyFilterDescriptor)                  \
  X(cudnnSetFilterNdDescriptor)                    \
  X(cudnnCreateConvolutionDescriptor)              \
  X(cudnnDestroyConvolutionDescriptor)             \
  X(cudnnSetConvolutionNdDescriptor)               \
  X(cudnnSetConvolutionGroupCount)                 \
  X(cudnnSetConvolutionMathType)                   \
  X(cudnnCreateActivationDescriptor)               \
  X(cudnnDestroyActivationDescriptor)              \
  X(cudnnSetActivationDescriptor)                  \
  X(cudnnGetConvolutionForwardAlgorithm_v7)        \
  X(cudnnGetConvolutionBackwardDataAlgorithm_v7)   \
  X(cudnnGetConvolutionBackwardFilterAlgorithm_v7) \
  X(cudnnFindConvolutionForwardAlgorithmEx)        \
  X(cudnnFindConvolutionBackwardDataAlgorithmEx)   \
  X(cudnnFindConvolutionBackwardFilterAlgorithmEx) \
  X(cudnnConvolutionForward)                       \
  X(cudnnConvolutionBiasActivationForward)         \
  X(cudnnConvolutionBackwardData)                  \
  X(cudnnConvolutionBackwardFilter)

/// Pointers to the functions, with their types from cudnn.h.
struct Cudnn {
#define ESPALIER_CUDNN_FUNCTION(name) decltype(&::name) name = nullptr;
  ESPALIER_CUDNN_FUNCTIONS(ESPALIER_CUDNN_FUNCTION)
#undef ESPALIER_CUDNN_FUNCTION
};

/// Opens the library that ESPALIER_CUDNN_LIBRARY names; else libcudnn.so.9 in the loader's search path or at
/// the path known from the build. Throws UnsupportedError without a library, or if its version is not that of
/// cudnn.h.
Cudnn open_cudnn();
/// The functions of the library, which the first call opens; null if there is none. Throws UnsupportedError
/// if ESPALIER_CUDNN_LIBRARY names one that cannot be used.
const Cudnn* cudnn();

/// Throws unless the status is success: OutOfMemory, UnsupportedError, or DeviceError. `what` names the call.
void check(cudnnStatus_t status, const char* what);

/// The current device's handle, for the current stream, while this lives: other threads wait. The library
/// must have been opened.
class CudnnCall {
 public:
  CudnnCall();
  cudnnHandle_t handle() const { return handle_; }

 private:
  std::unique_lock<std::mutex> lock_;
  cudnnHandle_t handle_;
};

struct CudnnFree {
  void operator()(cudnnTensorDescriptor_t x) const { cudnn()->cudnnDestroyTensorDescriptor(x); }
  void operator()(cudnnFilterDescriptor_t x) const { cudnn()->cudnnDestroyFilterDescriptor(x); }
  void operator()(cudnnActivationDescriptor_t x) const { cudnn()->cudnnDestroyActivationDescriptor(x); }
  void operator()(cudnnConvolutionDescriptor_t x) const { cudnn()->cudnnDestroyConvolutionDescriptor(x); }
};
/// Owns a descriptor.
template <class T>
using CudnnPointer = std::unique_ptr<std::remove_pointer_t<T>, CudnnFree>;

}  // namespace espalier::cu
