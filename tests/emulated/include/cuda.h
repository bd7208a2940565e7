// The types of the driver's interface, whose functions are asked from the runtime.
#pragma once

typedef int CUdevice;
typedef enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_DEVICE = 101 } CUresult;
#define CUDAAPI
