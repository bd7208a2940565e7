// Ops that draw random numbers.
#include "espalier/core/cuda/launch.h"
#include "espalier/core/philox.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/cuda/vectors.cuh"

namespace espalier::cu {

namespace {

constexpr int words_in_block = 4;

/// The random words of four elements from `element` on, which may come from several blocks of Philox.
__device__ philox::Block numbers_from(uint64_t seed, uint64_t stream, const RandomStream& random,
                                      int64_t element) {
  philox::Block words, block{};
  int64_t have = -1;
  for (int i = 0; i < words_in_block; ++i) {
    const int64_t e = element + i;
    const int64_t number = random.first + (random.run ? e / random.run * random.stride + e % random.run : e);
    if (const int64_t needed = number / words_in_block; needed != have) {
      block = philox::block(seed, stream, static_cast<uint64_t>(needed));
      have = needed;
    }
    const int lane = static_cast<int>(number % words_in_block);
    words.word[i] = lane == 0   ? block.word[0]
                    : lane == 1 ? block.word[1]
                    : lane == 2 ? block.word[2]
                                : block.word[3];
  }
  return words;
}

/// Writes `value` where the high bits of the element's word are below the threshold, else 0. Four elements
/// use one block of Philox. If `base` is not null, the seed is base[0], and the stream counts from base[1].
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    bernoulli_kernel(T* out, int64_t n, int threshold, T value, RandomStream random, const uint64_t* base) {
  const uint64_t seed = base ? base[0] : random.seed;
  const uint64_t stream = base ? base[1] + random.stream : random.stream;
  const bool aligned = reinterpret_cast<uintptr_t>(out) % (words_in_block * sizeof(T)) == 0;
  const int64_t blocks = (n + words_in_block - 1) / words_in_block;
  const bool whole = random.run == 0 && random.first % words_in_block == 0;
  for (int64_t b = grid_thread(); b < blocks; b += grid_threads()) {
    const philox::Block words =
        whole ? philox::block(seed, stream, static_cast<uint64_t>(random.first / words_in_block + b))
              : numbers_from(seed, stream, random, b * words_in_block);
    Vector<T, words_in_block> mask;
#pragma unroll
    for (int i = 0; i < words_in_block; ++i)
      mask.element[i] = philox::high_bits(words.word[i]) < threshold ? value : T(0);
    T* to = out + b * words_in_block;
    if (aligned && (b + 1) * words_in_block <= n) {
      constexpr int at_once = sizeof(mask) < vector_bytes ? sizeof(mask) : vector_bytes;
      write_words<at_once>(to, mask);
    } else {
#pragma unroll
      for (int i = 0; i < words_in_block; ++i)
        if (b * words_in_block + i < n) to[i] = mask.element[i];
    }
  }
}

template <class T>
Bound bind_bernoulli(const KernelCall& call, double keep, T value) {
  Tensor& output = *call.outputs[0];
  return bound([to = static_cast<T*>(output.address()), n = output.elements(), value,
                threshold = philox::keep_threshold(keep), base = call.random_base](RandomStream random) {
    launch(bernoulli_kernel<T>, grid_for(n, words_in_block), to, n, threshold, value, random, base);
  });
}

/// 1 / keep with probability `keep`, else 0. Draws the same numbers as fill_bernoulli.
Bound bind_dropout_mask(const Op& op, const KernelCall& call) {
  const double keep = 1 - attribute<double>(op, "rate");
  const Tensor& output = *call.outputs[0];
  if (output.elements() == 0) return bound([](RandomStream) {});
  const float value = static_cast<float>(1 / keep);
  switch (output.dtype()) {
    case DType::float64: return bind_bernoulli(call, keep, 1 / keep);
    case DType::float16: return bind_bernoulli(call, keep, Float16(value));
    case DType::bfloat16: return bind_bernoulli(call, keep, BFloat16(value));
    default: return bind_bernoulli(call, keep, value);
  }
}

}  // namespace

void add_random_kernels(KernelRegistry& kernels) { kernels.add("dropout_mask", bind_dropout_mask); }

}  // namespace espalier::cu
