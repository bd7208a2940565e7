#include <cuda_bf16.h>

#include <chrono>
#include <thread>

#include "kernels.h"

namespace bench {

namespace {

constexpr int kGateThreads = 512;

__global__ void empty() {}

// Four bytes mixed well (Wang), and the sum of four of them, which is nearly normal.
__device__ uint32_t mixed(uint32_t x) {
  x = (x ^ 61) ^ (x >> 16);
  x *= 9;
  x ^= x >> 4;
  x *= 0x27d4eb2d;
  return x ^ (x >> 15);
}
__device__ float normal(uint32_t i, uint32_t seed) {
  const uint32_t bits = mixed(i * 0x9e3779b9u + mixed(seed));
  const float sum = static_cast<float>((bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24));
  return (sum - 510.0f) / 147.8f;
}

template <class T>
__global__ void fill(T* to, size_t n, uint32_t seed) {
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x)
    to[i] = static_cast<T>(normal(static_cast<uint32_t>(i), seed));
}

__global__ void __launch_bounds__(kGateThreads) keep_busy(const volatile int* opened) {
  if (threadIdx.x == 0) {
    unsigned long long now, begin;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
      __nanosleep(200);
      asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (!*opened && now - begin < 2000000000ull);
  }
  __syncthreads();
}

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

void launch_empty(cudaStream_t stream) {
  empty<<<1, 32, 0, stream>>>();
  check(cudaGetLastError(), "an empty kernel");
}

void fill_random(const Memory& memory, int bytes_of_element, uint32_t seed, cudaStream_t stream) {
  const size_t n = memory.bytes() / static_cast<size_t>(bytes_of_element);
  if (bytes_of_element == 2)
    fill<<<1024, 256, 0, stream>>>(static_cast<__nv_bfloat16*>(memory.data()), n, seed);
  else
    fill<<<1024, 256, 0, stream>>>(static_cast<float*>(memory.data()), n, seed);
  check(cudaGetLastError(), "filling with numbers");
}

Gate::Gate() {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, sizeof(int), cudaHostAllocMapped), "cudaHostAlloc");
  opened_ = static_cast<volatile int*>(memory);
  *opened_ = 1;
}

Gate::~Gate() {
  *opened_ = 1;
  (void)cudaStreamSynchronize(stream_);
  (void)cudaFreeHost(const_cast<int*>(opened_));
}

void Gate::close() {
  stream_.wait();
  *opened_ = 0;
  void* seen = nullptr;
  check(cudaHostGetDevicePointer(&seen, const_cast<int*>(opened_), 0), "cudaHostGetDevicePointer");
  // As many threads as the device can hold, so that no other kernel can run.
  const int blocks = attribute(cudaDevAttrMultiProcessorCount) *
                     (attribute(cudaDevAttrMaxThreadsPerMultiProcessor) / kGateThreads);
  keep_busy<<<static_cast<unsigned>(blocks), kGateThreads, 0, stream_>>>(static_cast<const int*>(seen));
  check(cudaGetLastError(), "the gate");
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // until all of them have begun
}

void Gate::open() {
  if (cudaStreamQuery(stream_) != cudaErrorNotReady) throw std::runtime_error("the gate did not hold");
  *opened_ = 1;
}

}  // namespace bench
