// A lower bound for the pointwise workload: loops on all threads that read and write its arrays once and
// compute next to nothing. Compiled for this machine.
#include <cstdint>
#include <cstring>
#include <memory>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "pointwise_task.h"
#include "timing.h"

namespace {

constexpr int64_t kElements = pointwise_task::kElements;
constexpr int64_t kBlock = 16;  // floats in a cache line

// Stores a cache line without reading it first, where the machine supports it.
inline void store(float* to, const float* line) {
#ifdef __AVX512F__
  _mm512_stream_ps(to, _mm512_loadu_ps(line));
#else
  std::memcpy(to, line, kBlock * sizeof(float));
#endif
}

struct Arrays {
  std::unique_ptr<float[]> memory[6];
  float* at[6];
  Arrays() {
    for (int i = 0; i < 6; ++i) {
      memory[i].reset(new float[kElements + kBlock]);
      const auto address = reinterpret_cast<uintptr_t>(memory[i].get());
      at[i] = memory[i].get() + (64 - address % 64) % 64 / sizeof(float);
    }
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < kElements; ++j)
      for (float* array : at) array[j] = static_cast<float>(j % 8);
  }
};

// Reads three arrays and writes `outputs` of them.
template <int outputs>
void pass(const Arrays& arrays) {
  const float *a = arrays.at[0], *b = arrays.at[1], *c = arrays.at[2];
#pragma omp parallel for schedule(static)
  for (int64_t j = 0; j < kElements; j += kBlock) {
    alignas(64) float line[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) line[i] = a[j + i] * b[j + i] + c[j + i];
    for (int output = 0; output < outputs; ++output) store(arrays.at[3 + output] + j, line);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Arrays arrays;
  const int runs = 3 * bench::rounds(argc, argv);
  const double forward = bench::median_seconds(runs, [&] { pass<1>(arrays); });
  const double backward = bench::median_seconds(runs, [&] { pass<3>(arrays); });
  bench::report("pointwise_forward_floor_ms", forward * 1e3);
  bench::report("pointwise_backward_floor_ms", backward * 1e3);
  const double array = kElements * sizeof(float);
  bench::report("pointwise_forward_floor_mb", 4 * array / (1 << 20));
  bench::report("pointwise_backward_floor_mb", 6 * array / (1 << 20));
  bench::report("stream_gb_per_s", 4 * array / forward * 1e-9);
  return arrays.at[3][1] == 2 ? 0 : 1;
}
