// Ops that draw random numbers.
#include "espalier/core/cuda/launch.h"
#include "espalier/core/cuda/value_errors.h"
#include "espalier/core/philox.h"
#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/cuda/vectors.cuh"

namespace espalier::cu {

namespace {

// What a kernel makes of a block of Philox: `in_block` numbers, and of each an element. The numbers are those
// of fill_uniform, fill_normal and fill_bernoulli; normal ones up to rounding.

/// In [0, 1).
template <class T>
struct Uniform {
  using Element = T;
  using Number = Computed<T>;
  static constexpr int in_block = sizeof(Number) == sizeof(double) ? 2 : 4;

  __device__ void numbers(const philox::Block& block, Number* x) const {
#pragma unroll
    for (int i = 0; i < in_block; ++i)
      if constexpr (in_block == 2)
        x[i] = philox::uniform_double(block.word[2 * i], block.word[2 * i + 1]);
      else
        x[i] = philox::uniform_float(block.word[i]);
  }
  __device__ T element(int64_t, Number x) const { return static_cast<T>(x); }
};

/// Standard normal, by Box and Muller's formula.
template <class T>
struct Normal {
  using Element = T;
  using Number = Computed<T>;
  static constexpr int in_block = Uniform<T>::in_block;

  __device__ void numbers(const philox::Block& block, Number* x) const {
    const auto& w = block.word;
    if constexpr (in_block == 2) {
      pair(philox::positive_double(w[0], w[1]), philox::uniform_double(w[2], w[3]), x);
    } else {
      pair(philox::positive_float(w[0]), philox::uniform_float(w[1]), x);
      pair(philox::positive_float(w[2]), philox::uniform_float(w[3]), x + 2);
    }
  }
  __device__ T element(int64_t, Number x) const { return static_cast<T>(x); }

 private:
  static __device__ void pair(float positive, float turns, float* x) {
    const float radius = sqrtf(-2.0f * logf(positive));
    float sine, cosine;
    sincospif(2.0f * turns, &sine, &cosine);
    x[0] = radius * cosine;
    x[1] = radius * sine;
  }
  static __device__ void pair(double positive, double turns, double* x) {
    const double radius = sqrt(-2.0 * log(positive));
    double sine, cosine;
    sincospi(2.0 * turns, &sine, &cosine);
    x[0] = radius * cosine;
    x[1] = radius * sine;
  }
};

/// 1 where a uniform number is below the probability, else 0.
template <class T>
struct Bernoulli : Uniform<T> {
  using Number = Computed<T>;
  const T* probabilities;
  ValueReport report;

  __device__ T element(int64_t i, Number x) const {
    const Number p = static_cast<Number>(probabilities[i]);
    report.check_probability(static_cast<double>(p));
    return x < p ? T(1) : T(0);
  }
};

/// `value` where the high bits of the element's word are below the threshold, else 0.
template <class T>
struct Mask {
  using Element = T;
  using Number = int;
  static constexpr int in_block = 4;
  int threshold;
  T value;

  __device__ void numbers(const philox::Block& block, int* x) const {
#pragma unroll
    for (int i = 0; i < in_block; ++i) x[i] = philox::high_bits(block.word[i]);
  }
  __device__ T element(int64_t, int x) const { return x < threshold ? value : T(0); }
};

/// The numbers of as many elements as a block of Philox has, from `element` on; they may come from several.
template <class Draw>
__device__ void numbers_from(const Draw& draw, uint64_t seed, uint64_t stream, const RandomStream& random,
                             int64_t element, typename Draw::Number* x) {
  typename Draw::Number block[Draw::in_block] = {};
  int64_t have = -1;
  for (int i = 0; i < Draw::in_block; ++i) {
    const int64_t e = element + i;
    const int64_t number = random.first + (random.run ? e / random.run * random.stride + e % random.run : e);
    if (const int64_t needed = number / Draw::in_block; needed != have) {
      draw.numbers(philox::block(seed, stream, static_cast<uint64_t>(needed)), block);
      have = needed;
    }
    const int lane = static_cast<int>(number % Draw::in_block);
#pragma unroll
    for (int k = 0; k < Draw::in_block; ++k)
      if (k == lane) x[i] = block[k];
  }
}

/// If `base` is not null, the seed is base[0], and the stream counts from base[1].
template <class Draw>
__global__ void __launch_bounds__(threads_in_block)
    draw_kernel(typename Draw::Element* out, int64_t n, Draw draw, RandomStream random,
                const uint64_t* base) {
  constexpr int in_block = Draw::in_block;
  const uint64_t seed = base ? base[0] : random.seed;
  const uint64_t stream = base ? base[1] + random.stream : random.stream;
  using Elements = Vector<typename Draw::Element, in_block>;
  const bool aligned = reinterpret_cast<uintptr_t>(out) % sizeof(Elements) == 0;
  const int64_t blocks = (n + in_block - 1) / in_block;
  const bool whole = random.run == 0 && random.first % in_block == 0;
  for (int64_t b = grid_thread(); b < blocks; b += grid_threads()) {
    typename Draw::Number x[in_block];
    if (whole)
      draw.numbers(philox::block(seed, stream, static_cast<uint64_t>(random.first / in_block + b)), x);
    else
      numbers_from(draw, seed, stream, random, b * in_block, x);
    typename Draw::Element* to = out + b * in_block;
    if (aligned && (b + 1) * in_block <= n) {
      Elements elements;
#pragma unroll
      for (int i = 0; i < in_block; ++i) elements.element[i] = draw.element(b * in_block + i, x[i]);
      constexpr int at_once = sizeof(Elements) < vector_bytes ? sizeof(Elements) : vector_bytes;
      write_words<at_once>(to, elements);
    } else {
#pragma unroll
      for (int i = 0; i < in_block; ++i)
        if (b * in_block + i < n) to[i] = draw.element(b * in_block + i, x[i]);
    }
  }
}

template <class Draw>
void launch_draw(const KernelCall& call, const Draw& draw, const RandomStream& random) {
  Tensor& output = *call.outputs[0];
  const int64_t n = output.elements();
  launch(draw_kernel<Draw>, grid_for(n, Draw::in_block),
         static_cast<typename Draw::Element*>(output.address()), n, draw, random, call.random_base);
}

/// Calls `f(TypeTag<T>{})` with the type of the output's elements, which are real.
template <class F>
Bound for_real_output(const KernelCall& call, F&& f) {
  if (call.outputs[0]->elements() == 0) return bound([](RandomStream) {});
  switch (call.outputs[0]->dtype()) {
    case DType::float64: return f(TypeTag<double>{});
    case DType::float16: return f(TypeTag<Float16>{});
    case DType::bfloat16: return f(TypeTag<BFloat16>{});
    default: return f(TypeTag<float>{});
  }
}

template <template <class> class Draw>
Bound bind_draw(const KernelCall& call) {
  return for_real_output(call, [&]<class T>(TypeTag<T>) {
    return bound([call](RandomStream random) { launch_draw(call, Draw<T>(), random); });
  });
}

Bound bind_bernoulli(const KernelCall& call) {
  return for_real_output(call, [&]<class T>(TypeTag<T>) {
    return bound([call, p = ContiguousInput(*call.inputs[0]),
                  report = value_report(call, "bernoulli")](RandomStream random) mutable {
      p.refresh();
      Bernoulli<T> draw;
      draw.probabilities = static_cast<const T*>(p.address());
      draw.report = report;
      launch_draw(call, draw, random);
    });
  });
}

/// 1 / keep with probability `keep`, else 0.
Bound bind_dropout_mask(const Op& op, const KernelCall& call) {
  const double keep = 1 - attribute<double>(op, "rate");
  return for_real_output(call, [&]<class T>(TypeTag<T>) {
    const Mask<T> mask{philox::keep_threshold(keep), static_cast<T>(static_cast<Computed<T>>(1 / keep))};
    return bound([call, mask](RandomStream random) { launch_draw(call, mask, random); });
  });
}

}  // namespace

void add_random_kernels(KernelRegistry& kernels) {
  kernels.add("randn_like", bind_draw<Normal>);
  kernels.add("normal", bind_draw<Normal>);
  kernels.add("rand_like", bind_draw<Uniform>);
  kernels.add("rand_in_training_like", bind_draw<Uniform>);
  kernels.add("uniform", bind_draw<Uniform>);
  kernels.add("bernoulli", bind_bernoulli);
  kernels.add("dropout_mask", bind_dropout_mask);
}

}  // namespace espalier::cu
