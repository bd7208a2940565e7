// Ops that draw from further distributions: a thread for each element, with the numbers of core/sampling.h.
#include <cmath>

#include "espalier/core/sampling.h"

#include "espalier/core/cuda/launch.h"
#include "espalier/core/cuda/value_errors.h"
#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/random/random_op.h"
#include "espalier/ops/random/sampling_ops.h"

namespace espalier::cu {

namespace {

/// Where the numbers of a call come from. If `base` is not null, the seed is base[0], and the stream counts
/// from base[1].
struct SampleNumbers {
  RandomStream random;
  const uint64_t* base;

  __device__ sampling::ElementWords of(int64_t element) const {
    const uint64_t seed = base ? base[0] : random.seed;
    const uint64_t stream = base ? base[1] + random.stream : random.stream;
    const long long number = sampling::number_of(element, random.first, random.run, random.stride);
    return sampling::ElementWords(seed, stream, static_cast<unsigned long long>(number));
  }
};

template <class T, class Draw>
__global__ void __launch_bounds__(threads_in_block)
    sample_kernel(T* out, int64_t n, Draw draw, SampleNumbers numbers) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    sampling::ElementWords words = numbers.of(i);
    const auto drawn = draw(words);
    if constexpr (sizeof(T) == 2)
      out[i] = static_cast<T>(static_cast<float>(drawn));
    else
      out[i] = static_cast<T>(drawn);
  }
}

template <class Distribution, class T>
__global__ void __launch_bounds__(threads_in_block)
    sample_by_kernel(T* out, const T* __restrict__ parameters, int64_t n, ValueReport report,
                     SampleNumbers numbers) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const auto parameter = static_cast<double>(static_cast<Computed<T>>(parameters[i]));
    if (!Distribution::accepts(parameter)) {
      report.refuse_parameter(parameter);
      out[i] = T(0);
      continue;
    }
    sampling::ElementWords words = numbers.of(i);
    out[i] = static_cast<T>(static_cast<Computed<T>>(Distribution()(parameter, words)));
  }
}

/// A thread for each draw.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    multinomial_kernel(int64_t* out, const T* __restrict__ weights, int64_t rows, int64_t n, int64_t count,
                       ValueReport report, SampleNumbers numbers) {
  for (int64_t i = grid_thread(); i < rows * count; i += grid_threads()) {
    const T* row = weights + divide(i, count) * n;
    double total = 0;
    int64_t last = 0;
    for (int64_t k = 0; k < n; ++k) {
      const auto weight = static_cast<double>(static_cast<Computed<T>>(row[k]));
      if (!(weight >= 0 && weight < INFINITY)) report.refuse_parameter(weight);
      total += weight;
      if (weight > 0) last = k;
    }
    if (!(total > 0)) report.refuse_parameter(total);
    sampling::ElementWords words = numbers.of(i);
    const double at = words.uniform() * total;
    double sum = 0;
    int64_t k = 0;
    for (; k < last; ++k) {
      sum += static_cast<double>(static_cast<Computed<T>>(row[k]));
      if (sum > at) break;
    }
    out[i] = k;
  }
}

/// Without replacement, a thread for each row. `left` holds the weights of what has not been drawn.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    multinomial_once_kernel(int64_t* out, const T* __restrict__ weights, double* left, int64_t rows,
                            int64_t n, int64_t count, ValueReport report, SampleNumbers numbers) {
  for (int64_t r = grid_thread(); r < rows; r += grid_threads()) {
    double* row = left + r * n;
    for (int64_t k = 0; k < n; ++k) {
      row[k] = static_cast<double>(static_cast<Computed<T>>(weights[r * n + k]));
      if (!(row[k] >= 0 && row[k] < INFINITY)) report.refuse_parameter(row[k]);
    }
    for (int64_t c = 0; c < count; ++c) {
      double total = 0;
      int64_t last = 0;
      for (int64_t k = 0; k < n; ++k) {
        total += row[k];
        if (row[k] > 0) last = k;
      }
      if (!(total > 0)) report.refuse_parameter(total);
      sampling::ElementWords words = numbers.of(r * count + c);
      const double at = words.uniform() * total;
      double sum = 0;
      int64_t k = 0;
      for (; k < last; ++k) {
        sum += row[k];
        if (sum > at) break;
      }
      out[r * count + c] = k;
      row[k] = 0;
    }
  }
}

/// Calls `f(TypeTag<T>{})` with the type of real elements.
template <class F>
Bound for_real_elements(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float64: return f(TypeTag<double>{});
    case DType::float16: return f(TypeTag<Float16>{});
    case DType::bfloat16: return f(TypeTag<BFloat16>{});
    default: return f(TypeTag<float>{});
  }
}

template <class T, class Draw>
Bound bind_sample(const KernelCall& call, const Draw& draw) {
  const int64_t n = call.outputs[0]->elements();
  if (n == 0) return bound([](RandomStream) {});
  return bound([call, draw, n](RandomStream random) {
    launch(sample_kernel<T, Draw>, grid_for(n), static_cast<T*>(call.outputs[0]->address()), n, draw,
           SampleNumbers{random, call.random_base});
  });
}

Bound bind_truncated_normal(const Op& op, const KernelCall& call) {
  const sampling::TruncatedNormal draw =
      truncated_normal(attribute<double>(op, "low"), attribute<double>(op, "high"));
  return for_real_elements(call.outputs[0]->dtype(),
                           [&]<class T>(TypeTag<T>) { return bind_sample<T>(call, draw); });
}

Bound bind_randint(const Op& op, const KernelCall& call) {
  return bind_sample<int64_t>(call,
                              uniform_integer(attribute<int64_t>(op, "low"), attribute<int64_t>(op, "high")));
}

template <class Distribution>
Bound bind_sample_by(const KernelCall& call) {
  const int64_t n = call.outputs[0]->elements();
  if (n == 0) return bound([](RandomStream) {});
  return for_real_elements(call.outputs[0]->dtype(), [&]<class T>(TypeTag<T>) {
    return bound([call, n, parameters = ContiguousInput(*call.inputs[0]),
                  report = value_report(call, sampling_name<Distribution>)](RandomStream random) mutable {
      parameters.refresh();
      launch(sample_by_kernel<Distribution, T>, grid_for(n), static_cast<T*>(call.outputs[0]->address()),
             static_cast<const T*>(parameters.address()), n, report, SampleNumbers{random, call.random_base});
    });
  });
}

Bound bind_multinomial(const Op& op, const KernelCall& call) {
  const int64_t count = attribute<int64_t>(op, "count"), drawn = call.outputs[0]->elements();
  if (drawn == 0) return bound([](RandomStream) {});
  const Tensor& weights = *call.inputs[0];
  const int64_t rows = drawn / count, n = weights.shape()[-1];
  Tensor left;
  if (!attribute<bool>(op, "replacement")) left = Tensor({rows, n}, DType::float64, weights.device());
  return for_real_elements(weights.dtype(), [&]<class T>(TypeTag<T>) {
    return bound([call, rows, n, count, left, input = ContiguousInput(weights),
                  report = value_report(call, "multinomial")](RandomStream random) mutable {
      input.refresh();
      auto* out = static_cast<int64_t*>(call.outputs[0]->address());
      const T* from = static_cast<const T*>(input.address());
      const SampleNumbers numbers{random, call.random_base};
      if (left.defined())
        launch(multinomial_once_kernel<T>, grid_for(rows), out, from, static_cast<double*>(left.address()),
               rows, n, count, report, numbers);
      else
        launch(multinomial_kernel<T>, grid_for(rows * count), out, from, rows, n, count, report, numbers);
    });
  });
}

}  // namespace

void add_sampling_kernels(KernelRegistry& kernels) {
  kernels.add("truncated_normal_like", bind_truncated_normal);
  kernels.add("randint_like", bind_randint);
  kernels.add("poisson", bind_sample_by<sampling::Poisson>);
  kernels.add("gamma", bind_sample_by<sampling::Gamma>);
  kernels.add("multinomial", bind_multinomial);
}

}  // namespace espalier::cu
