// Small kernels, and pinned memory, for the tests of the emulated device.
#pragma once
#include "device_buffer.h"

__global__ inline void scale(float* x, int n, float factor) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] *= factor;
}
__global__ inline void put(float* x, float value) { *x = value; }
__global__ inline void copy_one(float* to, const float* from) { *to = *from; }
__global__ inline void add_to(float* x, float value) { *x += value; }

struct Pinned {
  explicit Pinned(size_t count) { BOOST_REQUIRE_EQUAL(cudaMallocHost(&data, count * sizeof(float)), 0); }
  ~Pinned() { cudaFreeHost(data); }
  float* data = nullptr;
};
