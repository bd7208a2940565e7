// Strided copies: axes are joined and elements widened as far as the strides allow; what then is still not
// one row of bytes goes through a kernel that walks the target in order, or, where source and target run
// along different axes, through tiles in shared memory.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "espalier/core/cuda/copy.h"
#include "espalier/core/cuda/fast_divide.h"
#include "espalier/core/cuda/launch.h"

namespace espalier::cu {

namespace {

struct Axis {
  int64_t size, from, to;  ///< strides in elements
};
using AxisList = SmallVector<Axis, 8>;

/// Addresses and axes of a copy, the last axis walked first.
struct Copy {
  const char* from;
  char* to;
  size_t element;  ///< in bytes
  AxisList axes;

  int64_t elements() const {
    int64_t n = 1;
    for (const Axis& axis : axes) n *= axis.size;
    return n;
  }
};

/// Axes in the order of the target, those of size 1 dropped, neighbours joined.
AxisList joined_axes(const Tensor& from, const Tensor& to) {
  AxisList axes, joined;
  for (size_t i = 0; i < from.rank(); ++i)
    if (const int64_t size = from.shape().dims()[i]; size != 1)
      axes.push_back({size, from.strides()[i], to.strides()[i]});
  std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.to > b.to; });
  for (const Axis& axis : axes) {
    if (!joined.empty() && joined.back().from == axis.from * axis.size &&
        joined.back().to == axis.to * axis.size)
      joined.back() = {joined.back().size * axis.size, axis.from, axis.to};
    else
      joined.push_back(axis);
  }
  if (joined.empty()) joined.push_back({1, 1, 1});
  return joined;
}

/// Rows that are contiguous on both sides are copied in elements of up to 16 bytes.
void widen(Copy& copy) {
  Axis& row = copy.axes.back();
  if (row.from != 1 || row.to != 1) return;
  const auto fits = [&](size_t times) {
    const auto n = static_cast<int64_t>(times);
    const size_t bytes = copy.element * times;
    if (row.size % n || reinterpret_cast<uintptr_t>(copy.from) % bytes ||
        reinterpret_cast<uintptr_t>(copy.to) % bytes)
      return false;
    for (size_t i = 0; i + 1 < copy.axes.size(); ++i)
      if (copy.axes[i].from % n || copy.axes[i].to % n) return false;
    return true;
  };
  size_t times = 16 / copy.element;
  while (times > 1 && !fits(times)) times /= 2;
  copy.element *= times;
  row.size /= static_cast<int64_t>(times);
  for (size_t i = 0; i + 1 < copy.axes.size(); ++i) {
    copy.axes[i].from /= static_cast<int64_t>(times);
    copy.axes[i].to /= static_cast<int64_t>(times);
  }
}

constexpr int most_axes = 8;

/// Axes as a kernel takes them, the innermost first. A number is taken apart by dividing, inside out.
template <class Index, class Divide>
struct Walk {
  int count = 0;
  Divide size[most_axes];
  Index from[most_axes], to[most_axes];

  explicit Walk(const AxisList& axes) : count(static_cast<int>(axes.size())) {
    for (int i = 0; i < count; ++i) {
      const Axis& axis = axes[axes.size() - 1 - static_cast<size_t>(i)];
      size[i] = Divide(static_cast<Index>(axis.size));
      from[i] = static_cast<Index>(axis.from);
      to[i] = static_cast<Index>(axis.to);
    }
  }

#if defined(__CUDACC__) || defined(ESPALIER_EMULATED_CUDA)
  __device__ __forceinline__ void locate(Index n, Index& from_at, Index& to_at) const {
    from_at = to_at = 0;
#pragma unroll
    for (int i = 0; i < most_axes; ++i) {
      if (i == count) break;
      const Index rest = size[i].quotient(n);
      const Index at = n - rest * static_cast<Index>(size[i].divisor);
      from_at += at * from[i];
      to_at += at * to[i];
      n = rest;
    }
  }
#endif
};
using ShortWalk = Walk<uint32_t, FastDivide>;
using LongWalk = Walk<int64_t, PlainDivide>;

/// Several elements a thread at once, so that enough loads are under way.
template <class T, class Index, class Divide>
__global__ void __launch_bounds__(threads_in_block)
    copy_kernel(const T* __restrict__ from, T* __restrict__ to, Index n, Walk<Index, Divide> walk) {
  constexpr int each = 4;
  const int64_t all = grid_threads();
  for (int64_t first = grid_thread(); first < n; first += each * all) {
    T value[each];
    Index to_at[each];
#pragma unroll
    for (int k = 0; k < each; ++k) {
      const int64_t at = first + k * all;
      if (at >= n) break;
      Index from_at;
      walk.locate(static_cast<Index>(at), from_at, to_at[k]);
      value[k] = from[from_at];
    }
#pragma unroll
    for (int k = 0; k < each; ++k) {
      if (first + k * all >= n) break;
      to[to_at[k]] = value[k];
    }
  }
}

/// Elements along `across` are neighbours in the source, elements along `along` in the target.
struct Tiles {
  int64_t across, along;              ///< sizes
  int64_t across_to, along_from;      ///< the strides that are not 1
  int64_t tiles_across, tiles_along;  ///< in each matrix
};

template <class T>
constexpr int tile_side = sizeof(T) >= 4 ? 32 : 64;

/// Neighbours that are read or written at once.
template <class T, int V>
struct alignas(sizeof(T) * V) Neighbours {
  T at[V];
};

template <class T, int V>
__global__ void __launch_bounds__(threads_in_block)
    transpose_kernel(const T* __restrict__ from, T* __restrict__ to, Tiles tiles, int64_t count,
                     LongWalk outer) {
  using Pack = Neighbours<T, V>;
  constexpr int side = tile_side<T>, lanes = side / V;
  constexpr int rows = threads_in_block / lanes;
  __shared__ T tile[side][side + 1];
  const int lane = static_cast<int>(threadIdx.x) % lanes * V,
            first_row = static_cast<int>(threadIdx.x) / lanes;
  for (int64_t t = blockIdx.x; t < count; t += gridDim.x) {
    const int64_t matrix = t / (tiles.tiles_across * tiles.tiles_along);
    const int64_t in_matrix = t - matrix * (tiles.tiles_across * tiles.tiles_along);
    const int64_t tile_along = in_matrix / tiles.tiles_across;
    const int64_t across = (in_matrix - tile_along * tiles.tiles_across) * side, along = tile_along * side;
    int64_t from_at, to_at;
    outer.locate(matrix, from_at, to_at);
#pragma unroll
    for (int row = first_row; row < side; row += rows)
      if (along + row < tiles.along && across + lane < tiles.across) {
        const T* at = from + from_at + (along + row) * tiles.along_from + across + lane;
        const Pack read = *reinterpret_cast<const Pack*>(at);
#pragma unroll
        for (int v = 0; v < V; ++v) tile[row][lane + v] = read.at[v];
      }
    __syncthreads();
#pragma unroll
    for (int row = first_row; row < side; row += rows)
      if (across + row < tiles.across && along + lane < tiles.along) {
        Pack write;
#pragma unroll
        for (int v = 0; v < V; ++v) write.at[v] = tile[lane + v][row];
        *reinterpret_cast<Pack*>(to + to_at + (across + row) * tiles.across_to + along + lane) = write;
      }
    __syncthreads();
  }
}

/// The axis along which the source is contiguous while the target is along the last; none is -1.
int transposed_axis(const Copy& copy) {
  const Axis& last = copy.axes.back();
  if (last.to != 1 || last.from <= 1 || last.size < 8) return -1;
  for (size_t i = 0; i + 1 < copy.axes.size(); ++i)
    if (copy.axes[i].from == 1 && copy.axes[i].size >= 8) return static_cast<int>(i);
  return -1;
}

/// Whether pairs of neighbours can be read and written at once.
bool in_pairs(const Copy& copy, int axis) {
  const auto pair = static_cast<uintptr_t>(2 * copy.element);
  if (reinterpret_cast<uintptr_t>(copy.from) % pair || reinterpret_cast<uintptr_t>(copy.to) % pair)
    return false;
  const auto across = static_cast<size_t>(axis), along = copy.axes.size() - 1;
  for (size_t i = 0; i < copy.axes.size(); ++i) {
    const Axis& a = copy.axes[i];
    const bool is_tiled = i == across || i == along;
    if ((is_tiled && a.size % 2) || (i != across && a.from % 2) || (i != along && a.to % 2)) return false;
  }
  return true;
}

template <class T>
void launch_transpose(const Copy& copy, int axis) {
  constexpr int side = tile_side<T>;
  const Axis across = copy.axes[static_cast<size_t>(axis)], along = copy.axes.back();
  AxisList outer;
  for (size_t i = 0; i + 1 < copy.axes.size(); ++i)
    if (static_cast<int>(i) != axis) outer.push_back(copy.axes[i]);
  Tiles tiles{across.size,
              along.size,
              across.to,
              along.from,
              (across.size + side - 1) / side,
              (along.size + side - 1) / side};
  int64_t count = tiles.tiles_across * tiles.tiles_along;
  for (const Axis& a : outer) count *= a.size;
  const Grid grid{dim3(static_cast<unsigned>(std::min<int64_t>(count, 0x7fffffff))), dim3(threads_in_block)};
  auto* kernel = transpose_kernel<T, 1>;
  if constexpr (sizeof(T) == 2)  // a warp then moves as many bytes as with larger elements
    if (in_pairs(copy, axis)) kernel = transpose_kernel<T, 2>;
  launch(kernel, grid, reinterpret_cast<const T*>(copy.from), reinterpret_cast<T*>(copy.to), tiles, count,
         LongWalk(outer));
}

template <class T>
void launch_copy(const Copy& copy) {
  if constexpr (sizeof(T) <= 8)  // wider ones are rows on both sides
    if (const int axis = transposed_axis(copy); axis >= 0) return launch_transpose<T>(copy, axis);
  const int64_t n = copy.elements();
  int64_t from_end = 0, to_end = 0;
  bool backwards = false;
  for (const Axis& axis : copy.axes) {
    backwards |= axis.from < 0 || axis.to < 0;
    from_end += (axis.size - 1) * axis.from;
    to_end += (axis.size - 1) * axis.to;
  }
  const auto* from = reinterpret_cast<const T*>(copy.from);
  auto* to = reinterpret_cast<T*>(copy.to);
  if (!backwards && std::max({n, from_end, to_end}) < int64_t{1} << 31)
    launch(copy_kernel<T, uint32_t, FastDivide>, grid_for(n, 4), from, to, n, ShortWalk(copy.axes));
  else
    launch(copy_kernel<T, int64_t, PlainDivide>, grid_for(n, 4), from, to, n, LongWalk(copy.axes));
}

struct alignas(16) Bytes16 {
  uint64_t low, high;
};

void run(const Copy& copy) {
  if (copy.axes.size() > most_axes) {  // outer axes are walked here
    const Axis outer = copy.axes[0];
    Copy inner = copy;
    inner.axes = AxisList(copy.axes.begin() + 1, copy.axes.end());
    for (int64_t i = 0; i < outer.size; ++i) {
      run(inner);
      inner.from += static_cast<size_t>(outer.from) * copy.element;
      inner.to += static_cast<size_t>(outer.to) * copy.element;
    }
    return;
  }
  switch (copy.element) {
    case 1: return launch_copy<uint8_t>(copy);
    case 2: return launch_copy<uint16_t>(copy);
    case 4: return launch_copy<uint32_t>(copy);
    case 8: return launch_copy<uint64_t>(copy);
    default: return launch_copy<Bytes16>(copy);
  }
}

}  // namespace

void copy_strided(const Tensor& from, Tensor& to) {
  if (to.elements() == 0) return;
  Copy copy{static_cast<const char*>(from.address()), static_cast<char*>(to.address()), size_of(to.dtype()),
            joined_axes(from, to)};
  if (copy.axes.size() == 1 && copy.axes[0].from == 1 && copy.axes[0].to == 1)
    return check(cudaMemcpyAsync(copy.to, copy.from, to.bytes(), cudaMemcpyDeviceToDevice, current_stream()),
                 "copying within a device");
  widen(copy);
  run(copy);
}

namespace {

struct FewBytes {
  unsigned char bytes[most_bytes_put];
};

__global__ void put_kernel(unsigned char* to, FewBytes few, unsigned int n) {
  if (threadIdx.x < n) to[threadIdx.x] = few.bytes[threadIdx.x];
}

}  // namespace

void put_bytes(void* to, const void* from, size_t bytes) {
  FewBytes few{};
  std::memcpy(few.bytes, from, bytes);
  launch(put_kernel, Grid{dim3(1), dim3(most_bytes_put)}, static_cast<unsigned char*>(to), few,
         static_cast<unsigned int>(bytes));
}

int lowest_architecture() {
#ifdef __CUDA_ARCH_LIST__
  constexpr int compiled[] = {__CUDA_ARCH_LIST__};
  return *std::min_element(std::begin(compiled), std::end(compiled)) / 10;
#else
  return 0;  // emulated: no GPU is needed
#endif
}

cudaError_t try_kernels() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, copy_kernel<uint32_t, uint32_t, FastDivide>);
}

}  // namespace espalier::cu
