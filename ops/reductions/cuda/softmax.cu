// Softmax, log-softmax, and cross-entropy with labels, along the last axis. Rows of up to 1024 elements are
// held in the registers of a warp or a part of one; a block reads longer rows once if they fit into shared
// memory, else twice if it needs their elements again.
#include <algorithm>
#include <limits>
#include <optional>

#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/index_list.h"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

constexpr int64_t most_in_registers = 1024;
// Every kernel may use 48 KiB; reductions over the block need a part of it.
constexpr int64_t most_shared_bytes = 47 * 1024;

/// The maximum of a row, and Σ exp(x - maximum).
template <class C>
struct Figures {
  C largest, sum;
};

template <class C>
__device__ __forceinline__ C lowest() {
  return -std::numeric_limits<C>::infinity();
}
/// exp(x - shift), where both may be -infinity.
template <class C>
__device__ __forceinline__ C exponential(C x, C shift) {
  return x == lowest<C>() ? C(0) : scalar::Exp()(x - shift);
}

// The outputs of a row: one for each element, given its exponential, or one for the row.

template <class T>
struct SoftmaxOut {
  using C = Computed<T>;
  static constexpr bool by_element = true;
  T* out;

  __device__ C common(const Figures<C>& row) const { return C(1) / row.sum; }
  __device__ T element(C, C raised, C, C scale) const { return static_cast<T>(raised * scale); }
};

template <class T>
struct LogSoftmaxOut {
  using C = Computed<T>;
  static constexpr bool by_element = true;
  T* out;

  __device__ C common(const Figures<C>& row) const { return scalar::Log()(row.sum); }
  __device__ T element(C x, C, C largest, C log_sum) const { return static_cast<T>(x - largest - log_sum); }
};

/// The log-softmax of the labelled element, times `sign`, and the row statistics for the gradient.
template <class T>
struct PickOut {
  using C = Computed<T>;
  static constexpr bool by_element = false;
  T* out;
  C* figures;
  IndexList labels;
  C sign;

  __device__ void row(int64_t r, const T* x, int64_t n, const Figures<C>& found) const {
    const int64_t label = labels.at(r, n, false);
    const C log_sum = scalar::Log()(found.sum);
    if (n > 0) out[r] = static_cast<T>(sign * (static_cast<C>(x[label]) - found.largest - log_sum));
    figures[2 * r] = found.largest;
    figures[2 * r + 1] = log_sum;
  }
};

/// Holds each row in the registers of `lanes` threads, K · V elements in each. The output may be the input.
template <int V, int K, class T, class Out>
__global__ void __launch_bounds__(threads_in_block)
    short_rows(const T* in, int64_t rows, int n, int lanes, Out out) {
  using C = Computed<T>;
  using Read = Several<T, V>;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1), units = n / V;
  const int64_t groups = threads_in_block / lanes;  // for each block
  // Whole warps stay in the loop because of the shuffles.
  for (int64_t base = blockIdx.x * groups; base < rows; base += gridDim.x * groups) {
    const int64_t r = base + threadIdx.x / lanes;
    const bool inside = r < rows;
    const T* row = in + r * n;
    C x[K][V];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int unit = k * lanes + lane;
      if (inside && unit < units) {
        const Read read = reinterpret_cast<const Read*>(row)[unit];
#pragma unroll
        for (int v = 0; v < V; ++v) x[k][v] = static_cast<C>(read.at[v]);
      } else {
#pragma unroll
        for (int v = 0; v < V; ++v) x[k][v] = lowest<C>();
      }
    }
    Figures<C> found{lowest<C>(), C(0)};
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int v = 0; v < V; ++v) found.largest = scalar::Maximum()(found.largest, x[k][v]);
    found.largest = fold_lanes(found.largest, lanes, scalar::Maximum());
    C raised[K][V];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      C part(0);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        raised[k][v] = k * lanes + lane < units ? scalar::Exp()(x[k][v] - found.largest) : C(0);
        part += raised[k][v];
      }
      found.sum += part;
    }
    found.sum = fold_lanes(found.sum, lanes, scalar::Add());
    if constexpr (Out::by_element) {
      const C common = out.common(found);
#pragma unroll
      for (int k = 0; k < K; ++k) {
        const int unit = k * lanes + lane;
        if (inside && unit < units) {
          Read write;
#pragma unroll
          for (int v = 0; v < V; ++v) write.at[v] = out.element(x[k][v], raised[k][v], found.largest, common);
          reinterpret_cast<Read*>(out.out + r * n)[unit] = write;
        }
      }
    } else if (inside && lane == 0) {
      out.row(r, row, n, found);
    }
  }
}

/// One block for each row. With `kept`, shared memory holds the row for the outputs. The output may be the
/// input.
template <int V, bool kept, class T, class Out>
__global__ void __launch_bounds__(1024) long_rows(const T* in, int64_t rows, int64_t n, Out out) {
  using C = Computed<T>;
  using Read = Several<T, V>;
  constexpr int batch = V == 1 ? 8 : 4;
  Read* const copy = dynamic_shared<Read>();
  const int64_t units = n / V, step = blockDim.x;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const Read* row = reinterpret_cast<const Read*>(in + r * n);
    Figures<C> own{lowest<C>(), C(0)};
    for (int64_t begin = threadIdx.x; begin < units; begin += batch * step) {
      C x[batch][V];
#pragma unroll
      for (int k = 0; k < batch; ++k) {
        const int64_t unit = begin + k * step;
        const bool inside = unit < units;
        const Read read = row[inside ? unit : begin];
        if (kept && inside) copy[unit] = read;
#pragma unroll
        for (int v = 0; v < V; ++v) x[k][v] = inside ? static_cast<C>(read.at[v]) : lowest<C>();
      }
      C largest = own.largest, part(0);
#pragma unroll
      for (int k = 0; k < batch; ++k)
#pragma unroll
        for (int v = 0; v < V; ++v) largest = scalar::Maximum()(largest, x[k][v]);
#pragma unroll
      for (int k = 0; k < batch; ++k)
#pragma unroll
        for (int v = 0; v < V; ++v) part += exponential(x[k][v], largest);
      own = {largest, own.sum * exponential(own.largest, largest) + part};
    }
    Figures<C> found;
    found.largest = fold_block(own.largest, scalar::Maximum());
    found.sum = fold_block(own.sum * exponential(own.largest, found.largest), scalar::Add());
    if constexpr (Out::by_element) {
      const C common = out.common(found);
      Read* to = reinterpret_cast<Read*>(out.out + r * n);
#pragma unroll 4
      for (int64_t unit = threadIdx.x; unit < units; unit += step) {
        const Read read = kept ? copy[unit] : row[unit];
        Read write;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const C x = static_cast<C>(read.at[v]);
          write.at[v] = out.element(x, scalar::Exp()(x - found.largest), found.largest, common);
        }
        to[unit] = write;
      }
    } else if (threadIdx.x == 0) {
      out.row(r, in + r * n, n, found);
    }
  }
}

/// sign · slope · (one_hot(label) - softmax(x)), from the row statistics. The output may be x.
template <int V, class T>
__global__ void __launch_bounds__(threads_in_block)
    pick_gradient(const T* in, const Computed<T>* __restrict__ figures, IndexList labels,
                  const T* __restrict__ slopes, bool one_slope, Computed<T> sign, int64_t rows, int64_t n,
                  T* out) {
  using C = Computed<T>;
  using Read = Several<T, V>;
  const int64_t units = n / V;
  for (int64_t i = grid_thread(); i < rows * units; i += grid_threads()) {
    const int64_t r = divide(i, units), column = (i - r * units) * V;
    const Read read = reinterpret_cast<const Read*>(in)[i];
    const C largest = figures[2 * r], log_sum = figures[2 * r + 1];
    const C slope = sign * static_cast<C>(slopes[one_slope ? 0 : r]);
    const int64_t label = labels.at(r, n, false);
    Read write;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      C g = -slope * scalar::Exp()(static_cast<C>(read.at[v]) - largest - log_sum);
      if (column + v == label) g += slope;
      write.at[v] = static_cast<T>(g);
    }
    reinterpret_cast<Read*>(out)[i] = write;
  }
}

template <int V, int K, class T, class Out>
void launch_short(const T* in, int64_t rows, int64_t n, const Out& out) {
  const int64_t lanes = std::min<int64_t>(32, power_from(n / V));
  launch(short_rows<V, K, T, Out>, grid_for(rows * lanes), in, rows, n, lanes, out);
}

template <int V, class T, class Out>
void launch_long(const T* in, int64_t rows, int64_t n, const Out& out) {
  const int64_t units = n / V, bytes = n * static_cast<int64_t>(sizeof(T));
  const bool kept = Out::by_element && bytes <= most_shared_bytes;
  const int64_t block = std::clamp<int64_t>(power_from(units / (V == 1 ? 8 : 4)), 128, 1024);
  const Grid grid{dim3(static_cast<unsigned>(std::min<int64_t>(rows, 1 << 30))),
                  dim3(static_cast<unsigned>(block)), kept ? static_cast<size_t>(bytes) : 0};
  if constexpr (Out::by_element) {
    if (kept) return launch(long_rows<V, true, T, Out>, grid, in, rows, n, out);
  }
  launch(long_rows<V, false, T, Out>, grid, in, rows, n, out);
}

template <int V, class T, class Out>
void launch_rows(const T* in, int64_t rows, int64_t n, const Out& out) {
  constexpr int most = 32 / V;  // vectors of each thread
  if (n > most_in_registers)
    launch_long<V>(in, rows, n, out);
  else if (n <= 32 * V)
    launch_short<V, 1>(in, rows, n, out);
  else if (n <= most_in_registers / 4)
    launch_short<V, most / 4>(in, rows, n, out);
  else
    launch_short<V, most>(in, rows, n, out);
}

template <class T, class Out>
void launch_any(const void* address, int64_t rows, int64_t n, const Out& out) {
  const T* in = static_cast<const T*>(address);
  constexpr int width = vector_width<T>;
  if (in_vectors<T>(in, n) && in_vectors<T>(out.out, Out::by_element ? n : 0))
    launch_rows<width>(in, rows, n, out);
  else
    launch_rows<1>(in, rows, n, out);
}

template <template <class> class Out>
Bound bind_rows(const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const int64_t n = out.shape()[-1], rows = out.elements() / n;
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>)
      result = bound([=, to = static_cast<T*>(out.address()),
                      x = ContiguousInput(*call.inputs[0])](RandomStream) mutable {
        x.refresh();
        launch_any<T>(x.address(), rows, n, Out<T>{to});
      });
  });
  return result;
}

/// −1 for the loss.
template <class T>
Computed<T> sign_of(const Op& op) {
  return attribute<bool>(op, "loss") ? Computed<T>(-1) : Computed<T>(1);
}

Bound bind_log_softmax_pick(const Op& op, const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  const int64_t n = call.inputs[0]->shape()[-1], rows = out.elements();
  if (rows == 0) return bound([](RandomStream) {});
  ContiguousInput x(*call.inputs[0]), labels(*call.inputs[1]);
  const IndexList list = index_list(call, *call.inputs[1], labels, attribute<std::string>(op, "function"));
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>) {
      const PickOut<T> pick{static_cast<T*>(out.address()),
                            static_cast<Computed<T>*>(call.outputs[1]->address()), list, sign_of<T>(op)};
      result = bound([=, x = std::move(x), labels = std::move(labels)](RandomStream) mutable {
        x.refresh();
        labels.refresh();
        launch_any<T>(x.address(), rows, n, pick);
      });
    }
  });
  return result;
}

Bound bind_log_softmax_pick_gradient(const Op& op, const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const int64_t n = out.shape()[-1], rows = out.elements() / n;
  const Tensor& slope = *call.inputs[3];
  const bool one_slope =
      std::all_of(slope.strides().begin(), slope.strides().end(), [](int64_t s) { return s == 0; });
  ContiguousInput x(*call.inputs[0]), figures(*call.inputs[1]), labels(*call.inputs[2]);
  std::optional<ContiguousInput> slopes;  // one value for all rows is read in place
  if (!one_slope) slopes.emplace(slope);
  const IndexList list = index_list(call, *call.inputs[2], labels, attribute<std::string>(op, "function"));
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>) {
      T* to = static_cast<T*>(out.address());
      const T* one = one_slope ? static_cast<const T*>(slope.address()) : nullptr;
      const Computed<T> sign = sign_of<T>(op);
      result = bound([=, x = std::move(x), figures = std::move(figures), labels = std::move(labels),
                      slopes = std::move(slopes)](RandomStream) mutable {
        x.refresh();
        figures.refresh();
        labels.refresh();
        if (slopes) slopes->refresh();
        const T* in = static_cast<const T*>(x.address());
        constexpr int width = vector_width<T>;
        const bool vectors = in_vectors<T>(in, n) && in_vectors<T>(to, n);
        launch(vectors ? pick_gradient<width, T> : pick_gradient<1, T>,
               grid_for(rows * n, vectors ? width : 1), in,
               static_cast<const Computed<T>*>(figures.address()), list,
               one ? one : static_cast<const T*>(slopes->address()), one_slope, sign, rows, n, to);
      });
    }
  });
  return result;
}

}  // namespace

void add_softmax_kernels(KernelRegistry& kernels) {
  kernels.add("softmax", bind_rows<SoftmaxOut>);
  kernels.add("log_softmax", bind_rows<LogSoftmaxOut>);
  kernels.add("log_softmax_pick", bind_log_softmax_pick);
  kernels.add("log_softmax_pick_gradient", bind_log_softmax_pick_gradient);
}

}  // namespace espalier::cu
