// Scans along an axis. A row is divided into chunks: blocks combine the elements of each chunk, one block for
// each row scans these totals, and blocks scan the chunks behind them. Short and strided rows have one thread
// each. The order of operations does not depend on timing.
#include <algorithm>
#include <limits>

#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

constexpr int each = 8;  // adjacent elements of a thread
constexpr int64_t tile = int64_t{threads_in_block} * each;

// The scans. A State stands for the elements of a range; `join` is associative, and its left operand comes
// first. `begin` is the state of no elements.

template <class T>
using Wider = std::conditional_t<is_real_element<T>, double, T>;

template <class T, class F, int neutral>
struct Accumulation {
  using State = Wider<T>;
  const T* in;
  T* out;
  __device__ State begin() const { return State(neutral); }
  __device__ State load(int64_t at) const { return static_cast<State>(static_cast<Computed<T>>(in[at])); }
  __device__ State join(State a, State b) const { return F()(a, b); }
  __device__ void store(int64_t at, State x) const { out[at] = static_cast<T>(static_cast<Computed<T>>(x)); }
};

/// log Σ exp, as the largest element and the sum of the exponentials of what is below it.
template <class T>
struct LogSum {
  struct State {
    double largest, sum;
  };
  const T* in;
  T* out;
  __device__ State begin() const { return {-std::numeric_limits<double>::infinity(), 0}; }
  __device__ State load(int64_t at) const {
    return {static_cast<double>(static_cast<Computed<T>>(in[at])), 1};
  }
  __device__ State join(State a, State b) const {
    const State &high = a.largest >= b.largest ? a : b, &low = a.largest >= b.largest ? b : a;
    const double gap = low.largest - high.largest;
    if (high.largest != high.largest || low.largest != low.largest) return {a.largest + b.largest, 1};  // NaN
    return {high.largest, gap == gap ? high.sum + low.sum * scalar::Exp()(gap) : high.sum};
  }
  __device__ void store(int64_t at, State x) const {
    const bool finite = x.largest - x.largest == 0;
    out[at] = static_cast<T>(static_cast<Computed<T>>(finite ? x.largest + scalar::Log()(x.sum) : x.largest));
  }
};

template <class T, bool largest>
struct Extremes {
  struct State {
    Computed<T> value;
    int64_t at;  ///< in the row; −1 for no element
  };
  const T* in;
  T* out;
  int64_t* indices;
  int64_t n, inner;
  __device__ State begin() const { return {Computed<T>(0), -1}; }
  __device__ State load(int64_t at) const {
    return {static_cast<Computed<T>>(in[at]), divide(at, inner) % n};
  }
  __device__ State join(State a, State b) const {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    const bool later = !a_is_nan && (b_is_nan || (largest ? b.value > a.value : b.value < a.value));
    return later ? b : a;
  }
  __device__ void store(int64_t at, State x) const {
    out[at] = static_cast<T>(x.value);
    indices[at] = x.at;
  }
};

/// y = term + factor · y before: a range maps the value before it to the value at its end.
template <class T>
struct Recurrence {
  struct State {
    double factor, term;
  };
  const T *factors, *terms;
  T* out;
  int64_t n;
  int lag;  ///< where the factor of an element stands
  bool reverse;
  __device__ State begin() const { return {1, 0}; }
  __device__ State load(int64_t at) const {
    const bool first = at % n == (reverse ? n - 1 : 0);
    return {first ? 0 : static_cast<double>(static_cast<Computed<T>>(factors[at + lag])),
            static_cast<double>(static_cast<Computed<T>>(terms[at]))};
  }
  /// The first element of a row has no value before it, and factor 0. What follows it keeps that, also behind
  /// infinite factors.
  __device__ State join(State a, State b) const {
    if (a.factor == 1 && a.term == 0) return b;
    return {a.factor == 0 ? 0 : a.factor * b.factor, b.term + b.factor * a.term};
  }
  __device__ void store(int64_t at, State x) const {
    out[at] = static_cast<T>(static_cast<Computed<T>>(x.term));
  }
};

/// Rows of n elements, `inner` apart: row r begins at r / inner · n · inner + r % inner.
struct ScanForm {
  int64_t rows, n, inner, chunk, chunks;
  bool reverse;
  __device__ int64_t element(int64_t row, int64_t k) const {
    const int64_t outer = divide(row, inner);
    return (outer * n + (reverse ? n - 1 - k : k)) * inner + (row - outer * inner);
  }
};

/// One thread for each row.
template <class S>
__global__ void __launch_bounds__(threads_in_block) scan_each(S scan, ScanForm form) {
  for (int64_t row = grid_thread(); row < form.rows; row += grid_threads()) {
    typename S::State state = scan.begin();
    for (int64_t k = 0; k < form.n; ++k) {
      const int64_t at = form.element(row, k);
      state = scan.join(state, scan.load(at));
      scan.store(at, state);
    }
  }
}

/// What the threads before this one have together. All threads of the block must call it; `total` is what all
/// have together.
template <class S>
__device__ typename S::State scan_block(const S& scan, typename S::State own, typename S::State& total) {
  __shared__ typename S::State states[threads_in_block];
  const int t = static_cast<int>(threadIdx.x);
  __syncthreads();  // all threads have read the states of the previous call
  states[t] = own;
  __syncthreads();
  for (int apart = 1; apart < threads_in_block; apart *= 2) {
    const typename S::State before = t >= apart ? states[t - apart] : own;
    __syncthreads();
    if (t >= apart) states[t] = scan.join(before, states[t]);
    __syncthreads();
  }
  total = states[threads_in_block - 1];
  return t > 0 ? states[t - 1] : scan.begin();
}

/// One block for each chunk: what its elements have together.
template <class S>
__global__ void __launch_bounds__(threads_in_block)
    scan_totals(S scan, ScanForm form, typename S::State* __restrict__ totals) {
  using State = typename S::State;
  for (int64_t number = blockIdx.x; number < form.rows * form.chunks; number += gridDim.x) {
    const int64_t row = divide(number, form.chunks), c = number - row * form.chunks;
    const int64_t end = min(form.n, (c + 1) * form.chunk);
    State state = scan.begin();
    for (int64_t begin = c * form.chunk; begin < end; begin += tile) {
      State own = scan.begin(), all;
      const int64_t first = begin + int64_t{threadIdx.x} * each, last = min(end, first + each);
      for (int64_t k = first; k < last; ++k) own = scan.join(own, scan.load(form.element(row, k)));
      scan_block(scan, own, all);
      state = scan.join(state, all);
    }
    if (threadIdx.x == 0) totals[number] = state;
  }
}

/// One block for each row: the totals become those of all chunks before.
template <class S>
__global__ void __launch_bounds__(threads_in_block)
    scan_carries(S scan, ScanForm form, typename S::State* __restrict__ totals) {
  using State = typename S::State;
  for (int64_t row = blockIdx.x; row < form.rows; row += gridDim.x) {
    State carry = scan.begin();
    for (int64_t begin = 0; begin < form.chunks; begin += threads_in_block) {
      const int64_t c = begin + threadIdx.x;
      const State own = c < form.chunks ? totals[row * form.chunks + c] : scan.begin();
      State all;
      const State before = scan_block(scan, own, all);
      if (c < form.chunks) totals[row * form.chunks + c] = scan.join(carry, before);
      carry = scan.join(carry, all);
    }
  }
}

/// One block for each chunk: writes the results. Without `carries` chunks are rows.
template <class S>
__global__ void __launch_bounds__(threads_in_block)
    scan_chunks(S scan, ScanForm form, const typename S::State* __restrict__ carries) {
  using State = typename S::State;
  for (int64_t number = blockIdx.x; number < form.rows * form.chunks; number += gridDim.x) {
    const int64_t row = divide(number, form.chunks), c = number - row * form.chunks;
    const int64_t end = min(form.n, (c + 1) * form.chunk);
    State carry = carries ? carries[number] : scan.begin();
    for (int64_t begin = c * form.chunk; begin < end; begin += tile) {
      const int64_t first = begin + int64_t{threadIdx.x} * each;
      State states[each], own = scan.begin(), all;
#pragma unroll
      for (int k = 0; k < each; ++k) {
        states[k] = first + k < end ? scan.load(form.element(row, first + k)) : scan.begin();
        own = scan.join(own, states[k]);
      }
      State state = scan.join(carry, scan_block(scan, own, all));
#pragma unroll
      for (int k = 0; k < each; ++k) {
        state = scan.join(state, states[k]);
        if (first + k < end) scan.store(form.element(row, first + k), state);
      }
      carry = scan.join(carry, all);
    }
  }
}

/// The axis of a scan, and where its elements are.
ScanForm scan_form(const Shape& shape, size_t axis, bool reverse) {
  ScanForm form{1, shape.dims()[axis], 1, 0, 1, reverse};
  for (size_t i = 0; i < shape.rank(); ++i)
    if (i != axis) {
      form.rows *= shape.dims()[i];
      if (i > axis) form.inner *= shape.dims()[i];
    }
  const int64_t wanted = divide_up(int64_t{limits().multiprocessors} * 4, std::max<int64_t>(form.rows, 1));
  const int64_t chunks = std::clamp<int64_t>(form.n / (4 * tile), 1, wanted);
  form.chunk = divide_up(divide_up(form.n, chunks), tile) * tile;
  form.chunks = std::max<int64_t>(1, divide_up(form.n, form.chunk));
  return form;
}

/// Binds a scan; `make()` renews the inputs and returns it.
template <class S, class Make>
Bound bind_scan_of(const ScanForm& form, Device device, Make make) {
  constexpr int64_t many = 8192;  // rows that keep the device busy with one thread each
  if (form.n <= 32 || (form.inner > 1 && form.rows >= many))
    return bound([=](RandomStream) mutable { launch(scan_each<S>, grid_for(form.rows), make(), form); });
  const auto blocks = [](int64_t n) { return dim3(static_cast<unsigned>(std::min<int64_t>(n, 1 << 30))); };
  const Grid all{blocks(form.rows * form.chunks), dim3(threads_in_block)},
      rows{blocks(form.rows), dim3(threads_in_block)};
  if (form.chunks == 1)
    return bound([=](RandomStream) mutable {
      launch(scan_chunks<S>, all, make(), form, static_cast<const typename S::State*>(nullptr));
    });
  const Shape bytes{form.rows * form.chunks * static_cast<int64_t>(sizeof(typename S::State))};
  return bound([=, memory = Tensor(bytes, boolean, device)](RandomStream) mutable {
    auto* totals = static_cast<typename S::State*>(memory.address());
    const S scan = make();
    launch(scan_totals<S>, all, scan, form, totals);
    launch(scan_carries<S>, rows, scan, form, totals);
    launch(scan_chunks<S>, all, scan, form, static_cast<const typename S::State*>(totals));
  });
}

template <class F, int neutral>
Bound bind_accumulation(const Op& op, const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const size_t axis = resolve_axis(attribute<int64_t>(op, "axis"), out.rank(), op.name());
  const ScanForm form = scan_form(out.shape(), axis, attribute<bool>(op, "reverse"));
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>) {
      using S = Accumulation<T, F, neutral>;
      result = bind_scan_of<S>(
          form, out.device(),
          [x = ContiguousInput(*call.inputs[0]), to = static_cast<T*>(out.address())]() mutable {
            x.refresh();
            return S{static_cast<const T*>(x.address()), to};
          });
    }
  });
  return result;
}

Bound bind_logcumsumexp(const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const ScanForm form = scan_form(out.shape(), out.rank() - 1, false);
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>) {
      using S = LogSum<T>;
      result = bind_scan_of<S>(
          form, out.device(),
          [x = ContiguousInput(*call.inputs[0]), to = static_cast<T*>(out.address())]() mutable {
            x.refresh();
            return S{static_cast<const T*>(x.address()), to};
          });
    }
  });
  return result;
}

template <bool largest>
Bound bind_cumulative_extreme(const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const ScanForm form = scan_form(out.shape(), out.rank() - 1, false);
  auto* indices = static_cast<int64_t*>(call.outputs[1]->address());
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>) {
      using S = Extremes<T, largest>;
      result = bind_scan_of<S>(
          form, out.device(),
          [=, x = ContiguousInput(*call.inputs[0]), to = static_cast<T*>(out.address())]() mutable {
            x.refresh();
            return S{static_cast<const T*>(x.address()), to, indices, form.n, form.inner};
          });
    }
  });
  return result;
}

Bound bind_linear_scan(const Op& op, const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const bool reverse = attribute<bool>(op, "reverse");
  const int lag = attribute<bool>(op, "lagged") ? (reverse ? 1 : -1) : 0;
  const ScanForm form = scan_form(out.shape(), out.rank() - 1, reverse);
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>) {
      using S = Recurrence<T>;
      result = bind_scan_of<S>(form, out.device(),
                               [=, a = ContiguousInput(*call.inputs[0]), b = ContiguousInput(*call.inputs[1]),
                                to = static_cast<T*>(out.address())]() mutable {
                                 a.refresh();
                                 b.refresh();
                                 return S{static_cast<const T*>(a.address()),
                                          static_cast<const T*>(b.address()),
                                          to,
                                          form.n,
                                          lag,
                                          reverse};
                               });
    }
  });
  return result;
}

/// Moves the elements of rows by one.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    shift_rows(const T* __restrict__ in, T* __restrict__ out, int64_t count, int64_t n, bool reverse,
               T fill) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const int64_t k = i - divide(i, n) * n;
    out[i] = k == (reverse ? n - 1 : 0) ? fill : in[reverse ? i + 1 : i - 1];
  }
}

Bound bind_shift_by_one(const Op& op, const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const bool reverse = attribute<bool>(op, "reverse");
  const double fill = attribute<double>(op, "fill");
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>)
      result = bound([=, x = ContiguousInput(*call.inputs[0]), to = static_cast<T*>(out.address()),
                      n = out.shape()[-1], count = out.elements()](RandomStream) mutable {
        x.refresh();
        launch(shift_rows<T>, grid_for(count), static_cast<const T*>(x.address()), to, count, n, reverse,
               static_cast<T>(static_cast<Computed<T>>(fill)));
      });
  });
  return result;
}

}  // namespace

void add_scan_kernels(KernelRegistry& kernels) {
  kernels.add("cumsum", bind_accumulation<scalar::Add, 0>);
  kernels.add("cumprod", bind_accumulation<scalar::Multiply, 1>);
  kernels.add("logcumsumexp", bind_logcumsumexp);
  kernels.add("cummax", bind_cumulative_extreme<true>);
  kernels.add("cummin", bind_cumulative_extreme<false>);
  kernels.add("linear_scan", bind_linear_scan);
  kernels.add("shift_by_one", bind_shift_by_one);
}

}  // namespace espalier::cu
