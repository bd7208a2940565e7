#include "espalier/executor/communicators/cuda/rank_kernels.h"

#include <algorithm>
#include <type_traits>

#include "espalier/core/cuda/launch.h"
#include "espalier/core/scalar.h"
#include "espalier/ops/cuda/vectors.cuh"

namespace espalier::cu {

namespace {

struct Buffers {
  const void* from[most_ranks];
  void* to[most_ranks];
  double weight[most_ranks];
  int froms = 0, tos = 0;
  int64_t head = 0, vectors = 0, tail = 0;  // elements, then vectors of them, then elements
};

// Products are rounded, as on the CPU, and not fused with the sum that follows.
__device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }

template <class T, int V, bool weighted, class F>
__device__ __forceinline__ void reduce_at(const Buffers& buffers, int64_t at, bool mean, F f) {
  using C = compute_t<T>;
  const auto read = [&](int rank, C* values) {
    const Vector<T, V> x = read_vector<V>(static_cast<const T*>(buffers.from[rank]) + at);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      values[i] = static_cast<C>(x.element[i]);
      if constexpr (weighted) values[i] = product(static_cast<C>(buffers.weight[rank]), values[i]);
    }
  };
  C sum[V];
  read(0, sum);
#pragma unroll 4
  for (int rank = 1; rank < buffers.froms; ++rank) {
    C next[V];
    read(rank, next);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] = f(sum[i], next[i]);
  }
  Vector<T, V> result;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    if constexpr (std::is_floating_point_v<C>)
      if (mean) sum[i] /= static_cast<C>(buffers.froms);
    result.element[i] = static_cast<T>(sum[i]);
  }
  for (int rank = 0; rank < buffers.tos; ++rank)
    write_vector<V>(static_cast<T*>(buffers.to[rank]) + at, result);
}

// The last threads take the single elements before and after the vectors.
template <class T, bool weighted, class F>
__global__ void reduce_kernel(const Buffers buffers, bool mean, F f) {
  constexpr int V = vector_bytes / sizeof(T);
  const int64_t ends = buffers.head + buffers.tail;
  for (int64_t i = grid_thread(); i < buffers.vectors + ends; i += grid_threads()) {
    if (i < buffers.vectors) {
      reduce_at<T, V, weighted>(buffers, buffers.head + i * V, mean, f);
    } else {
      const int64_t end = i - buffers.vectors;
      reduce_at<T, 1, weighted>(buffers, end < buffers.head ? end : end + buffers.vectors * V, mean, f);
    }
  }
}

template <class T>
__global__ void scale_kernel(T* values, int64_t n, compute_t<T> weight) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads())
    values[i] = static_cast<T>(weight * static_cast<compute_t<T>>(values[i]));
}

__global__ void count_kernel(int64_t* count, int64_t* seen) {
  *static_cast<volatile int64_t*>(seen) = ++*count;
  __threadfence_system();
}

/// Divides `count` elements into those that are aligned vectors in all buffers, and the rest.
void cut(Buffers& buffers, size_t size, int64_t count) {
  const auto offset = [](const void* address) { return reinterpret_cast<uintptr_t>(address) % vector_bytes; };
  const uintptr_t first = offset(buffers.to[0]);
  bool alike = first % size == 0;
  for (int i = 0; i < buffers.froms; ++i) alike &= offset(buffers.from[i]) == first;
  for (int i = 0; i < buffers.tos; ++i) alike &= offset(buffers.to[i]) == first;
  const auto width = static_cast<int64_t>(vector_bytes / size);
  buffers.head =
      alike ? std::min(count, static_cast<int64_t>((vector_bytes - first) % vector_bytes / size)) : count;
  buffers.vectors = (count - buffers.head) / width;
  buffers.tail = count - buffers.head - buffers.vectors * width;
}

template <class T, bool weighted, class F>
void launch_reduction(Buffers& buffers, int64_t count, bool mean, F f) {
  cut(buffers, sizeof(T), count);
  launch(reduce_kernel<T, weighted, F>, grid_for(buffers.vectors + buffers.head + buffers.tail), buffers,
         mean, f);
}

template <class T>
void set_to_zero(const Buffers& buffers, int64_t count) {
  for (int i = 0; i < buffers.tos; ++i)
    check(cudaMemsetAsync(buffers.to[i], 0, static_cast<size_t>(count) * sizeof(T), current_stream()),
          "setting memory to zero");
}

template <class T>
void reduce_elements(const RankReduction& work) {
  const std::span<const double> weights = work.weights;
  Buffers buffers{};
  for (size_t i = 0; i < work.from.size(); ++i) {
    if (!weights.empty() && weights[i] == 0) continue;
    buffers.weight[buffers.froms] = weights.empty() ? 1 : weights[i];
    buffers.from[buffers.froms++] = static_cast<const T*>(work.from[i]) + work.first;
  }
  for (void* to : work.to) buffers.to[buffers.tos++] = static_cast<T*>(to) + work.to_first;
  if (buffers.froms == 0) return set_to_zero<T>(buffers, work.count);
  const bool mean = work.reduction == Reduction::mean;
  if constexpr (std::is_floating_point_v<compute_t<T>>)
    if (!weights.empty()) return launch_reduction<T, true>(buffers, work.count, mean, scalar::Add());
  switch (work.reduction) {
    case Reduction::sum:
    case Reduction::mean: return launch_reduction<T, false>(buffers, work.count, mean, scalar::Add());
    case Reduction::max: return launch_reduction<T, false>(buffers, work.count, mean, scalar::Maximum());
    case Reduction::min: return launch_reduction<T, false>(buffers, work.count, mean, scalar::Minimum());
  }
}

}  // namespace

void reduce_ranks(const RankReduction& work) {
  if (work.count == 0 || work.to.empty()) return;
  visit_all(work.dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>) reduce_elements<T>(work);
  });
}

void copy_to_ranks(const void* from, std::span<void* const> to, size_t bytes) {
  if (bytes == 0 || to.empty()) return;
  Buffers buffers{};
  buffers.from[buffers.froms++] = from;
  for (void* address : to) buffers.to[buffers.tos++] = address;
  const auto copy = [&]<class T>(TypeTag<T>) {
    launch_reduction<T, false>(buffers, static_cast<int64_t>(bytes / sizeof(T)), false, scalar::Add());
  };
  uintptr_t all = reinterpret_cast<uintptr_t>(from) | bytes;
  for (void* address : to) all |= reinterpret_cast<uintptr_t>(address);
  // The reduction of one buffer is a copy.
  if (all % 4 == 0) return copy(TypeTag<int>{});
  if (all % 2 == 0) return copy(TypeTag<short>{});
  copy(TypeTag<unsigned char>{});
}

void scale(void* values, DType dtype, int64_t count, double weight) {
  if (count == 0 || weight == 1) return;
  if (weight == 0)
    return check(cudaMemsetAsync(values, 0, static_cast<size_t>(count) * size_of(dtype), current_stream()),
                 "setting memory to zero");
  visit_all(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_floating_point_v<compute_t<T>>)
      launch(scale_kernel<T>, grid_for(count), static_cast<T*>(values), count,
             static_cast<compute_t<T>>(weight));
  });
}

void count(int64_t* count, int64_t* seen) { launch(count_kernel, Grid{dim3(1), dim3(1)}, count, seen); }

}  // namespace espalier::cu
