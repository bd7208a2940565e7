// The stream of a GPU in which kernels run, for code that launches kernels of its own.
#pragma once
#include <source_location>

#include "espalier/core/device.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace espalier {

/// The stream in which the calling thread's kernels on that GPU run: in the forward function of a custom op
/// that of the evaluation or plan that calls it, elsewhere the device's stream for eager evaluation, which
/// all threads share. It does not synchronize with CUDA's default stream. What is launched in it runs after
/// the work that computes the tensors which the thread has, and before what the thread evaluates next; with
/// another stream, events have to order the two. Do not destroy it. Throws DeviceError for a CPU, or where
/// there is no such GPU.
CUstream_st* cuda_stream(Device device = gpu(), std::source_location where = std::source_location::current());

}  // namespace espalier
