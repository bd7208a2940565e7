// Device functions of generated kernels. This text precedes each of them, after core/half.h and
// core/scalar.h; it is compiled at run time and includes nothing.
namespace espalier {

/// N adjacent elements, loaded and stored at once.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

// Load N elements and convert them to C: all, the first `count`, or none. The others become zero.

template <class C, int N, class T>
__device__ __forceinline__ void load_all(C (&to)[N], const T* from, bool inside) {
  Pack<T, N> pack = {};
  if (inside) pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int k = 0; k < N; ++k) to[k] = static_cast<C>(pack.at[k]);
}
template <class C, int N, class T>
__device__ __forceinline__ void load_some(C (&to)[N], const T* from, int count) {
  Pack<T, N> pack = {};
  if (count == N) {
    pack = *reinterpret_cast<const Pack<T, N>*>(from);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k)
      if (k < count) pack.at[k] = from[k];
  }
#pragma unroll
  for (int k = 0; k < N; ++k) to[k] = static_cast<C>(pack.at[k]);
}
/// One element, N times.
template <class C, int N, class T>
__device__ __forceinline__ void load_same(C (&to)[N], const T* from, bool inside) {
  C x = C();
  if (inside) x = static_cast<C>(*from);
#pragma unroll
  for (int k = 0; k < N; ++k) to[k] = x;
}
template <class C, class T>
__device__ __forceinline__ void load_one(C& to, const T* from, bool inside) {
  to = C();
  if (inside) to = static_cast<C>(*from);
}

template <class T, int N, class C>
__device__ __forceinline__ void store_all(T* to, const C (&from)[N], bool inside) {
  Pack<T, N> pack;
#pragma unroll
  for (int k = 0; k < N; ++k) pack.at[k] = static_cast<T>(from[k]);
  if (inside) *reinterpret_cast<Pack<T, N>*>(to) = pack;
}
template <class T, int N, class C>
__device__ __forceinline__ void store_some(T* to, const C (&from)[N], int count) {
  if (count == N) return store_all(to, from, true);
#pragma unroll
  for (int k = 0; k < N; ++k)
    if (k < count) to[k] = static_cast<T>(from[k]);
}
/// For unaligned addresses.
template <class T, int N, class C>
__device__ __forceinline__ void store_each(T* to, const C (&from)[N], int count) {
#pragma unroll
  for (int k = 0; k < N; ++k)
    if (k < count) to[k] = static_cast<T>(from[k]);
}

/// Folds x over each `lanes` adjacent lanes; all of them get the result. All threads of the warp call it.
template <class F, int lanes, class T>
__device__ __forceinline__ T fold_lanes(T x) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) x = F()(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
/// Folds x over the lanes of a warp that are `lanes` apart.
template <class F, int lanes, class T>
__device__ __forceinline__ T fold_across(T x) {
#pragma unroll
  for (int step = 16; step >= lanes; step /= 2) x = F()(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
/// Folds the results of the warps in `parts`.
template <class F, int warps, class T>
__device__ __forceinline__ T fold_parts(const T* parts) {
  T x = parts[0];
#pragma unroll
  for (int w = 1; w < warps; ++w) x = F()(x, parts[w]);
  return x;
}

/// Whether this block is the last of `count` to arrive. The counter is 0 before and after. The last block
/// sees all writes of the others: the barriers extend the fences of one thread to all.
__device__ __forceinline__ bool is_last(unsigned int* counter, unsigned int count) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(counter, 1u) == count - 1;
    if (last) *counter = 0;
    __threadfence();
  }
  __syncthreads();
  return last;
}

/// The same for one thread of each block, called after a __syncthreads(): if true, all blocks have done their
/// earlier reads.
__device__ __forceinline__ bool comes_last(unsigned int* counter, unsigned int count) {
  if (count == 1) return true;
  __threadfence();
  if (atomicAdd(counter, 1u) != count - 1) return false;
  *counter = 0;
  __threadfence();
  return true;
}

}  // namespace espalier
