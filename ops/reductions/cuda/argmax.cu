// The position of the first largest or smallest element along an axis; a NaN comes before all numbers.
#include <algorithm>
#include <limits>

#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

template <class C>
struct Found {
  C value;
  int64_t at;
};

/// The neutral element: no better than any element, and at a later position.
template <class C, bool largest>
__device__ __forceinline__ Found<C> nothing() {
  using Limits = std::numeric_limits<C>;
  constexpr C high = Limits::has_infinity ? Limits::infinity() : Limits::max();
  constexpr C low = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  return {largest ? low : high, std::numeric_limits<int64_t>::max()};
}

template <bool largest, class C>
__device__ __forceinline__ Found<C> better(const Found<C>& a, const Found<C>& b) {
  const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  if (a_is_nan != b_is_nan) return b_is_nan ? b : a;
  if (!a_is_nan && a.value != b.value) return (largest ? b.value > a.value : b.value < a.value) ? b : a;
  return b.at < a.at ? b : a;
}

/// Reduces over all threads of the block; thread 0 has the result.
template <bool largest, class C>
__device__ __forceinline__ Found<C> best_of_block(Found<C> x) {
  __shared__ Found<C> parts[32];
  for (int k = 16; k > 0; k /= 2)
    x = better<largest>(x, {__shfl_xor_sync(0xffffffffu, x.value, k), __shfl_xor_sync(0xffffffffu, x.at, k)});
  __syncthreads();  // thread 0 has read `parts` of the previous call
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x == 0)
    for (unsigned w = 1; w < blockDim.x / 32; ++w) x = better<largest>(x, parts[w]);
  return x;
}

/// Each output reduces `n` elements, `step` apart.
struct ArgmaxForm {
  int64_t outputs, n, step, chunk;
  StridedWalk kept;
};

/// One thread for each output.
template <bool largest, class T>
__global__ void __launch_bounds__(threads_in_block)
    argmax_each(const T* __restrict__ in, int64_t* __restrict__ out,
                const __grid_constant__ ArgmaxForm form) {
  using C = Computed<T>;
  for (int64_t o = grid_thread(); o < form.outputs; o += grid_threads()) {
    const T* row = in + form.kept.offset(o);
    Found<C> best = nothing<C, largest>();
#pragma unroll 4
    for (int64_t k = 0; k < form.n; ++k)
      best = better<largest>(best, {static_cast<C>(row[k * form.step]), k});
    out[o] = best.at;
  }
}

/// One block for each output, or for each chunk of its elements: then it writes to `found`, [chunks,
/// outputs].
template <bool largest, class T>
__global__ void __launch_bounds__(threads_in_block)
    argmax_block(const T* __restrict__ in, int64_t* __restrict__ out, Found<Computed<T>>* __restrict__ found,
                 const __grid_constant__ ArgmaxForm form) {
  using C = Computed<T>;
  const int64_t begin = blockIdx.y * form.chunk, end = min(begin + form.chunk, form.n);
  for (int64_t o = blockIdx.x; o < form.outputs; o += gridDim.x) {
    const T* row = in + form.kept.offset(o);
    Found<C> best = nothing<C, largest>();
#pragma unroll 4
    for (int64_t k = begin + threadIdx.x; k < end; k += blockDim.x)
      best = better<largest>(best, {static_cast<C>(row[k * form.step]), k});
    best = best_of_block<largest>(best);
    if (threadIdx.x != 0) continue;
    if (found)
      found[blockIdx.y * form.outputs + o] = best;
    else
      out[o] = best.at;
  }
}

template <bool largest, class C>
__global__ void __launch_bounds__(threads_in_block)
    argmax_of_chunks(const Found<C>* __restrict__ found, int64_t* __restrict__ out, int64_t outputs,
                     int64_t chunks) {
  for (int64_t o = blockIdx.x; o < outputs; o += gridDim.x) {
    Found<C> best = nothing<C, largest>();
    for (int64_t k = threadIdx.x; k < chunks; k += blockDim.x)
      best = better<largest>(best, found[k * outputs + o]);
    best = best_of_block<largest>(best);
    if (threadIdx.x == 0) out[o] = best.at;
  }
}

template <bool largest, class T>
Bound bind_argmax_of(const ArgmaxForm& form, const Tensor& input, Tensor& output) {
  using C = Computed<T>;
  const T* in = static_cast<const T*>(input.address());
  int64_t* out = static_cast<int64_t*>(output.address());
  constexpr int64_t many = 16384;
  if (form.n <= 16 || (form.step != 1 && form.outputs >= many))
    return bound(
        [=](RandomStream) { launch(argmax_each<largest, T>, grid_for(form.outputs), in, out, form); });

  const int64_t wanted = divide_up(int64_t{limits().multiprocessors} * 4, form.outputs);
  const int64_t chunks = std::clamp<int64_t>(form.n / (threads_in_block * 32), 1, wanted);
  ArgmaxForm in_chunks = form;
  in_chunks.chunk = divide_up(form.n, chunks);
  const int64_t used = divide_up(form.n, in_chunks.chunk);
  const auto block = static_cast<unsigned>(std::clamp<int64_t>(power_from(form.n / 4), 32, threads_in_block));
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(form.outputs, 1 << 30));
  const Grid grid{dim3(blocks, static_cast<unsigned>(used)), dim3(block)};
  if (used == 1)
    return bound([=](RandomStream) {
      launch(argmax_block<largest, T>, grid, in, out, static_cast<Found<C>*>(nullptr), in_chunks);
    });
  const Shape bytes{used * form.outputs * static_cast<int64_t>(sizeof(Found<C>))};
  return bound([=, memory = Tensor(bytes, boolean, output.device())](RandomStream) {
    auto* found = static_cast<Found<C>*>(memory.address());
    launch(argmax_block<largest, T>, grid, in, out, found, in_chunks);
    launch(argmax_of_chunks<largest, C>, Grid{dim3(blocks), dim3(threads_in_block)}, found, out, form.outputs,
           used);
  });
}

/// The position of the first extreme element along an axis.
template <bool largest>
Bound bind_argmax(const Op& op, const KernelCall& call) {
  const Tensor& in = *call.inputs[0];
  const size_t axis = resolve_axis(attribute<int64_t>(op, "axis"), in.rank(), op.name());
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  Layout kept = in.layout();
  kept.offset = 0;
  const int64_t n = kept.shape.dims()[axis], step = kept.strides[axis];
  kept.shape.dims().erase(axis);
  kept.strides.erase(axis);
  const ArgmaxForm form{out.elements(), n, step, n, StridedWalk(collapsed(kept))};
  Bound result;
  visit_elements(in.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>) result = bind_argmax_of<largest, T>(form, in, out);
  });
  return result;
}

}  // namespace

void add_argmax_kernels(KernelRegistry& kernels) {
  kernels.add("argmax", bind_argmax<true>);
  kernels.add("argmin", bind_argmax<false>);
}

}  // namespace espalier::cu
