// The position of the first largest element along an axis; a NaN counts as larger than all numbers.
#include <algorithm>
#include <limits>

#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

constexpr int threads = threads_in_block;

template <class C>
struct Found {
  C value;
  int64_t at;
};

/// The neutral element: not greater than any element, and at a later position.
template <class C>
__device__ __forceinline__ Found<C> nothing() {
  using Limits = std::numeric_limits<C>;
  return {Limits::has_infinity ? -Limits::infinity() : Limits::lowest(), std::numeric_limits<int64_t>::max()};
}

template <class C>
__device__ __forceinline__ Found<C> larger(const Found<C>& a, const Found<C>& b) {
  const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
  if (a_is_nan != b_is_nan) return b_is_nan ? b : a;
  if (!a_is_nan && a.value != b.value) return b.value > a.value ? b : a;
  return b.at < a.at ? b : a;
}

/// Reduces over all threads of the block; thread 0 has the result.
template <class C>
__device__ __forceinline__ Found<C> largest_of_block(Found<C> x) {
  __shared__ Found<C> parts[32];
  for (int k = 16; k > 0; k /= 2)
    x = larger(x, {__shfl_xor_sync(0xffffffffu, x.value, k), __shfl_xor_sync(0xffffffffu, x.at, k)});
  __syncthreads();  // thread 0 has read `parts` of the previous call
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  if (threadIdx.x == 0)
    for (unsigned w = 1; w < blockDim.x / 32; ++w) x = larger(x, parts[w]);
  return x;
}

/// Each output reduces `n` elements, `step` apart.
struct ArgmaxForm {
  int64_t outputs, n, step, chunk;
  StridedWalk kept;
};

/// One thread for each output.
template <class T>
__global__ void __launch_bounds__(threads) argmax_each(const T* __restrict__ in, int64_t* __restrict__ out,
                                                       const __grid_constant__ ArgmaxForm form) {
  using C = Computed<T>;
  for (int64_t o = grid_thread(); o < form.outputs; o += grid_threads()) {
    const T* row = in + form.kept.offset(o);
    Found<C> best = nothing<C>();
#pragma unroll 4
    for (int64_t k = 0; k < form.n; ++k) best = larger(best, {static_cast<C>(row[k * form.step]), k});
    out[o] = best.at;
  }
}

/// One block for each output, or for each chunk of its elements: then it writes to `found`, [chunks,
/// outputs].
template <class T>
__global__ void __launch_bounds__(threads)
    argmax_block(const T* __restrict__ in, int64_t* __restrict__ out, Found<Computed<T>>* __restrict__ found,
                 const __grid_constant__ ArgmaxForm form) {
  using C = Computed<T>;
  const int64_t begin = blockIdx.y * form.chunk, end = min(begin + form.chunk, form.n);
  for (int64_t o = blockIdx.x; o < form.outputs; o += gridDim.x) {
    const T* row = in + form.kept.offset(o);
    Found<C> best = nothing<C>();
#pragma unroll 4
    for (int64_t k = begin + threadIdx.x; k < end; k += blockDim.x)
      best = larger(best, {static_cast<C>(row[k * form.step]), k});
    best = largest_of_block(best);
    if (threadIdx.x != 0) continue;
    if (found)
      found[blockIdx.y * form.outputs + o] = best;
    else
      out[o] = best.at;
  }
}

template <class C>
__global__ void __launch_bounds__(threads)
    argmax_of_chunks(const Found<C>* __restrict__ found, int64_t* __restrict__ out, int64_t outputs,
                     int64_t chunks) {
  for (int64_t o = blockIdx.x; o < outputs; o += gridDim.x) {
    Found<C> best = nothing<C>();
    for (int64_t k = threadIdx.x; k < chunks; k += blockDim.x) best = larger(best, found[k * outputs + o]);
    best = largest_of_block(best);
    if (threadIdx.x == 0) out[o] = best.at;
  }
}

template <class T>
Bound bind_argmax_of(const ArgmaxForm& form, const Tensor& input, Tensor& output) {
  using C = Computed<T>;
  const T* in = static_cast<const T*>(input.address());
  int64_t* out = static_cast<int64_t*>(output.address());
  constexpr int64_t many = 16384;
  if (form.n <= 16 || (form.step != 1 && form.outputs >= many))
    return bound([=](RandomStream) { launch(argmax_each<T>, grid_for(form.outputs), in, out, form); });

  const int64_t wanted = divide_up(int64_t{limits().multiprocessors} * 4, form.outputs);
  const int64_t chunks = std::clamp<int64_t>(form.n / (threads * 32), 1, wanted);
  ArgmaxForm in_chunks = form;
  in_chunks.chunk = divide_up(form.n, chunks);
  const int64_t used = divide_up(form.n, in_chunks.chunk);
  const auto block = static_cast<unsigned>(std::clamp<int64_t>(power_from(form.n / 4), 32, threads));
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(form.outputs, 1 << 30));
  const Grid grid{dim3(blocks, static_cast<unsigned>(used)), dim3(block)};
  if (used == 1)
    return bound([=](RandomStream) {
      launch(argmax_block<T>, grid, in, out, static_cast<Found<C>*>(nullptr), in_chunks);
    });
  const Shape bytes{used * form.outputs * static_cast<int64_t>(sizeof(Found<C>))};
  return bound([=, memory = Tensor(bytes, boolean, output.device())](RandomStream) {
    auto* found = static_cast<Found<C>*>(memory.address());
    launch(argmax_block<T>, grid, in, out, found, in_chunks);
    launch(argmax_of_chunks<C>, Grid{dim3(blocks), dim3(threads)}, found, out, form.outputs, used);
  });
}

/// The position of the first largest element along an axis.
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
    if constexpr (!std::is_same_v<T, bool>) result = bind_argmax_of<T>(form, in, out);
  });
  return result;
}

}  // namespace

void add_argmax_kernels(KernelRegistry& kernels) { kernels.add("argmax", bind_argmax); }

}  // namespace espalier::cu
