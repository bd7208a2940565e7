// The part of cuDNN's interface that the emulated device supports, with cuDNN's names and values.
#pragma once
#include <cstddef>

#include "cuda_runtime_api.h"

#define CUDNN_MAJOR 9

typedef enum {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_NOT_INITIALIZED = 1001,
  CUDNN_STATUS_BAD_PARAM = 2000,
  CUDNN_STATUS_BAD_PARAM_NULL_POINTER = 2002,
  CUDNN_STATUS_NOT_SUPPORTED = 3000,
  CUDNN_STATUS_INTERNAL_ERROR = 4000,
  CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003,
  CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 4004,
  CUDNN_STATUS_EXECUTION_FAILED = 5000
} cudnnStatus_t;
typedef enum {
  CUDNN_DATA_FLOAT = 0,
  CUDNN_DATA_DOUBLE = 1,
  CUDNN_DATA_HALF = 2,
  CUDNN_DATA_BFLOAT16 = 9
} cudnnDataType_t;
typedef enum {
  CUDNN_DEFAULT_MATH = 0,
  CUDNN_TENSOR_OP_MATH = 1,
  CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION = 2,
  CUDNN_FMA_MATH = 3
} cudnnMathType_t;
typedef enum { CUDNN_NON_DETERMINISTIC = 0, CUDNN_DETERMINISTIC = 1 } cudnnDeterminism_t;
typedef enum { CUDNN_TENSOR_NCHW = 0, CUDNN_TENSOR_NHWC = 1 } cudnnTensorFormat_t;
typedef enum { CUDNN_NOT_PROPAGATE_NAN = 0, CUDNN_PROPAGATE_NAN = 1 } cudnnNanPropagation_t;
typedef enum {
  CUDNN_ACTIVATION_SIGMOID = 0,
  CUDNN_ACTIVATION_RELU = 1,
  CUDNN_ACTIVATION_TANH = 2,
  CUDNN_ACTIVATION_CLIPPED_RELU = 3,
  CUDNN_ACTIVATION_ELU = 4,
  CUDNN_ACTIVATION_IDENTITY = 5,
  CUDNN_ACTIVATION_SWISH = 6
} cudnnActivationMode_t;
typedef enum { CUDNN_CONVOLUTION = 0, CUDNN_CROSS_CORRELATION = 1 } cudnnConvolutionMode_t;
typedef enum {
  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM = 0,
  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1
} cudnnConvolutionFwdAlgo_t;
typedef enum {
  CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 = 0,
  CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 = 1
} cudnnConvolutionBwdDataAlgo_t;
typedef enum {
  CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 = 0,
  CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 = 1
} cudnnConvolutionBwdFilterAlgo_t;

struct cudnnContext;
typedef struct cudnnContext* cudnnHandle_t;
struct cudnnTensorStruct;
typedef struct cudnnTensorStruct* cudnnTensorDescriptor_t;
struct cudnnFilterStruct;
typedef struct cudnnFilterStruct* cudnnFilterDescriptor_t;
struct cudnnActivationStruct;
typedef struct cudnnActivationStruct* cudnnActivationDescriptor_t;
struct cudnnConvolutionStruct;
typedef struct cudnnConvolutionStruct* cudnnConvolutionDescriptor_t;

typedef struct cudnnConvolutionFwdAlgoPerfStruct {
  cudnnConvolutionFwdAlgo_t algo;
  cudnnStatus_t status;
  float time;
  size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t mathType;
  int reserved[3];
} cudnnConvolutionFwdAlgoPerf_t;
typedef struct cudnnConvolutionBwdDataAlgoPerfStruct {
  cudnnConvolutionBwdDataAlgo_t algo;
  cudnnStatus_t status;
  float time;
  size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t mathType;
  int reserved[3];
} cudnnConvolutionBwdDataAlgoPerf_t;
typedef struct cudnnConvolutionBwdFilterAlgoPerfStruct {
  cudnnConvolutionBwdFilterAlgo_t algo;
  cudnnStatus_t status;
  float time;
  size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t mathType;
  int reserved[3];
} cudnnConvolutionBwdFilterAlgoPerf_t;

extern "C" {
size_t cudnnGetVersion(void);
const char* cudnnGetErrorString(cudnnStatus_t status);
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* x);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t x);
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t x, cudnnDataType_t type, int axes,
                                         const int sizes[], const int strides[]);
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* w);
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t w);
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t w, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int axes, const int sizes[]);
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* a);
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t a);
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t a, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t of_nan, double coefficient);
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* c);
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t c);
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t c, int axes, const int padding[],
                                              const int stride[], const int dilation[],
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute);
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups);
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t math);

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t c,
                                                     const cudnnTensorDescriptor_t y, const int wanted,
                                                     int* given, cudnnConvolutionFwdAlgoPerf_t* found);
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t c,
                                                          const cudnnTensorDescriptor_t dx, const int wanted,
                                                          int* given,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* found);
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t dy,
                                                            const cudnnConvolutionDescriptor_t c,
                                                            const cudnnFilterDescriptor_t dw,
                                                            const int wanted, int* given,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* found);
cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t, const cudnnTensorDescriptor_t x_of, const void* x, const cudnnFilterDescriptor_t w_of,
    const void* w, const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t y_of, void* y,
    const int wanted, int* given, cudnnConvolutionFwdAlgoPerf_t* found, void* workspace, size_t bytes);
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t, const cudnnFilterDescriptor_t w_of, const void* w, const cudnnTensorDescriptor_t dy_of,
    const void* dy, const cudnnConvolutionDescriptor_t c, const cudnnTensorDescriptor_t dx_of, void* dx,
    const int wanted, int* given, cudnnConvolutionBwdDataAlgoPerf_t* found, void* workspace, size_t bytes);
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t, const cudnnTensorDescriptor_t x_of, const void* x, const cudnnTensorDescriptor_t dy_of,
    const void* dy, const cudnnConvolutionDescriptor_t c, const cudnnFilterDescriptor_t dw_of, void* dw,
    const int wanted, int* given, cudnnConvolutionBwdFilterAlgoPerf_t* found, void* workspace, size_t bytes);

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t, const void* alpha, const cudnnTensorDescriptor_t x_of,
                                      const void* x, const cudnnFilterDescriptor_t w_of, const void* w,
                                      const cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t,
                                      void* workspace, size_t bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_of, void* y);
cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t, const void* alpha1, const cudnnTensorDescriptor_t x_of, const void* x,
    const cudnnFilterDescriptor_t w_of, const void* w, const cudnnConvolutionDescriptor_t c,
    cudnnConvolutionFwdAlgo_t, void* workspace, size_t bytes, const void* alpha2,
    const cudnnTensorDescriptor_t z_of, const void* z, const cudnnTensorDescriptor_t bias_of,
    const void* bias, const cudnnActivationDescriptor_t a, const cudnnTensorDescriptor_t y_of, void* y);
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t, const void* alpha,
                                           const cudnnFilterDescriptor_t w_of, const void* w,
                                           const cudnnTensorDescriptor_t dy_of, const void* dy,
                                           const cudnnConvolutionDescriptor_t c,
                                           cudnnConvolutionBwdDataAlgo_t, void* workspace, size_t bytes,
                                           const void* beta, const cudnnTensorDescriptor_t dx_of, void* dx);
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t, const void* alpha,
                                             const cudnnTensorDescriptor_t x_of, const void* x,
                                             const cudnnTensorDescriptor_t dy_of, const void* dy,
                                             const cudnnConvolutionDescriptor_t c,
                                             cudnnConvolutionBwdFilterAlgo_t, void* workspace, size_t bytes,
                                             const void* beta, const cudnnFilterDescriptor_t dw_of, void* dw);
}
