// The kernel template of pointwise functors, and the table of its instances.
#pragma once
#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "espalier/core/cuda/launch.h"
#include "espalier/core/dtype.h"
#include "espalier/core/scalar.h"
#include "espalier/core/type_name.h"
#include "espalier/ops/cuda/vectors.cuh"
#include "espalier/ops/strided_launch.h"

namespace espalier::cu {

/// Reads `V` elements of an operand from `offset`; of a partial unit, only `count` elements.
template <int V, class T>
__device__ __forceinline__ Vector<T, V> read_unit(const StridedLaunch& walk, int k, int32_t offset,
                                                  int count) {
  const T* from = static_cast<const T*>(walk.data[k]) + offset;
  Vector<T, V> x;
  if constexpr (V == 1) {
    x.element[0] = *from;
  } else if (walk.access[k] == Access::same) {
    const T value = *from;
#pragma unroll
    for (int i = 0; i < V; ++i) x.element[i] = value;
  } else if (count < V || walk.access[k] == Access::each) {
    const int32_t step = walk.element_step[k];
#pragma unroll
    for (int i = 0; i < V; ++i) x.element[i] = from[i < count ? i * step : 0];
  } else if (walk.access[k] == Access::words) {
    if constexpr (V * sizeof(T) > 4) x = read_words<4, V>(from);
  } else {
    x = read_vector<V>(from);
  }
  return x;
}

template <int V, class R>
__device__ __forceinline__ void write_unit(const StridedLaunch& walk, int32_t offset, int count,
                                           const Vector<R, V>& x) {
  R* to = static_cast<R*>(walk.data[0]) + offset;
  if constexpr (V == 1) {
    *to = x.element[0];
  } else if (count < V || walk.access[0] == Access::each) {
#pragma unroll
    for (int i = 0; i < V; ++i)
      if (i < count) to[i] = x.element[i];
  } else if (walk.access[0] == Access::words) {
    if constexpr (V * sizeof(R) > 4) write_words<4>(to, x);
  } else {
    write_vector(to, x);
  }
}

/// A unit between read and write. A thread reads several units before it writes them. The output may be one
/// of the inputs.
template <class F, int V, class R, class... T>
struct UnitInFlight {
  std::tuple<Vector<T, V>...> in;
  int32_t to;
  int count = 0;

  __device__ __forceinline__ void read(const StridedLaunch& walk, uint32_t index) {
    if (index >= walk.units) return;
    int32_t offset[1 + sizeof...(T)];
    walk.locate(index, offset);
    to = offset[0];
    const uint32_t left = walk.elements - index * V;
    count = left < V ? static_cast<int>(left) : V;
    read(walk, offset, std::index_sequence_for<T...>());
  }
  template <size_t... K>
  __device__ __forceinline__ void read(const StridedLaunch& walk, const int32_t (&offset)[1 + sizeof...(T)],
                                       std::index_sequence<K...>) {
    ((std::get<K>(in) = read_unit<V, T>(walk, K + 1, offset[K + 1], count)), ...);
  }
  __device__ __forceinline__ void write(const StridedLaunch& walk) {
    if (count == 0) return;
    Vector<R, V> out;
#pragma unroll
    for (int i = 0; i < V; ++i) out.element[i] = value(i, std::index_sequence_for<T...>());
    write_unit(walk, to, count, out);
  }
  template <size_t... K>
  __device__ __forceinline__ R value(int i, std::index_sequence<K...>) {
    return static_cast<R>(F()(static_cast<compute_t<T>>(std::get<K>(in).element[i])...));
  }
};

template <int V>
inline constexpr int units_in_flight = V == 1 ? 4 : 2;

template <class F, int V, class R, class... T>
__global__ void __launch_bounds__(threads_in_block) pointwise_kernel(const StridedLaunch walk) {
  constexpr int several = units_in_flight<V>;
  for (uint32_t tile = blockIdx.x * blockDim.x * several; tile < walk.units;
       tile += gridDim.x * blockDim.x * several) {
    UnitInFlight<F, V, R, T...> unit[several];
#pragma unroll
    for (int u = 0; u < several; ++u) unit[u].read(walk, tile + u * blockDim.x + threadIdx.x);
#pragma unroll
    for (int u = 0; u < several; ++u) unit[u].write(walk);
  }
}

/// Tensors that are folded in one pass.
struct FoldTerms {
  static constexpr int most = 8;
  const void* data[most];
  int count;
};

/// The kernel of a functor for one element type.
struct PointwiseKernel {
  uint32_t unit = 0;  ///< elements that fill a vector of the widest operand; 0: there is no kernel
  void (*launch)(const StridedLaunch& walk) = nullptr;
  /// For some binary functors: folds contiguous tensors of n elements.
  void (*fold)(const FoldTerms& terms, void* out, int64_t n) = nullptr;
};

template <class F, class R, class... T>
PointwiseKernel pointwise_kernel_of() {
  constexpr size_t widest = std::max({sizeof(R), sizeof(T)...});
  constexpr int unit = vector_bytes / widest;
  PointwiseKernel kernel;
  kernel.unit = unit;
  kernel.launch = [](const StridedLaunch& walk) {
    if (walk.unit == 1)
      launch(pointwise_kernel<F, 1, R, T...>, grid_for(walk.units, units_in_flight<1>), walk);
    else
      launch(pointwise_kernel<F, unit, R, T...>, grid_for(walk.units, units_in_flight<unit>), walk);
  };
  return kernel;
}

/// The kernels of a functor, by the element type of its last input.
struct PointwiseFunction {
  size_t inputs = 0;
  std::array<PointwiseKernel, std::size(all_dtypes)> of_dtype{};

  template <class T>
  PointwiseKernel& of() {
    return of_dtype[static_cast<size_t>(dtype_of<T>())];
  }
};
using PointwiseTable = std::unordered_map<std::string_view, PointwiseFunction>;

// Each function adds the functors of its file.
void add_arithmetic(PointwiseTable& table);
void add_casts(PointwiseTable& table);
void add_comparisons(PointwiseTable& table);
void add_elementary(PointwiseTable& table);
void add_functions(PointwiseTable& table);
void add_activations(PointwiseTable& table);
void add_integers(PointwiseTable& table);

// Lists of element types.
template <class... T>
struct Types {};
using RealTypes = Types<float, double, Float16, BFloat16>;
using NumberTypes = Types<float, double, int32_t, int64_t, Float16, BFloat16>;
using AllTypes = Types<float, double, int32_t, int64_t, bool, Float16, BFloat16>;
/// With those that are only moved, compared and cast.
using StoredTypes = Types<float, double, int32_t, int64_t, bool, Float16, BFloat16, int8_t, uint8_t, int16_t>;

/// The element type of F's result for operands of type T: bool or T.
template <class F, class T, class... More>
using PointwiseResult =
    std::conditional_t<std::is_same_v<std::invoke_result_t<F, compute_t<T>, compute_t<More>...>, bool>, bool,
                       T>;

template <class F, class... T>
void add_unary(PointwiseTable& table, Types<T...>) {
  PointwiseFunction& f = table[type_name<F>()];
  f.inputs = 1;
  ((f.template of<T>() = pointwise_kernel_of<F, PointwiseResult<F, T>, T>()), ...);
}
template <class F, class... T>
void add_binary(PointwiseTable& table, Types<T...>) {
  PointwiseFunction& f = table[type_name<F>()];
  f.inputs = 2;
  ((f.template of<T>() = pointwise_kernel_of<F, PointwiseResult<F, T, T>, T, T>()), ...);
}

template <class... F>
void add_each_real(PointwiseTable& table, scalar::Functors<F...>) {
  (add_unary<F>(table, RealTypes()), ...);
}

}  // namespace espalier::cu
