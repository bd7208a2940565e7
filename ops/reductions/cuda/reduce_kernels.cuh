// Reductions along axes. Where the elements of one output are adjacent, a group of threads reduces them
// ("rows"); where outputs are adjacent, adjacent threads reduce adjacent outputs ("columns"). If there are
// too few outputs to occupy the device, each is reduced in chunks, and a second kernel reduces these in a
// fixed order, so results are deterministic.
#pragma once
#include <algorithm>
#include <limits>

#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/reductions/cuda/reduce_form.h"

namespace espalier::cu::reduction {

// The operations F. A few elements are added up in their computation type (Part), and these partial sums, for
// reals, in double (Total).

template <class T>
struct Sum {
  using Element = T;
  using Part = Computed<T>;
  using Total = std::conditional_t<is_real_element<T>, double, T>;
  using OfTotals = Sum<Total>;
  template <class U>
  __device__ U operator()(U a, U b) const {
    return scalar::Add()(a, b);
  }
  template <class U>
  static __device__ U none() {
    return U(0);
  }
  template <class To>
  static __device__ To finish(Total total, double divisor) {
    if constexpr (is_real_element<T>)
      return static_cast<To>(total / divisor);
    else
      return total;
  }
};

template <class T, class Pick, bool largest>
struct Extreme {
  using Element = T;
  using Part = Computed<T>;
  using Total = Part;
  using OfTotals = Extreme<Total, Pick, largest>;
  template <class U>
  __device__ U operator()(U a, U b) const {
    return Pick()(a, b);
  }
  template <class U>
  static __device__ U none() {
    using Limits = std::numeric_limits<U>;
    constexpr U high = Limits::has_infinity ? Limits::infinity() : Limits::max();
    constexpr U low = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    return largest ? low : high;
  }
  template <class To>
  static __device__ To finish(Total total, double) {
    return static_cast<To>(total);
  }
};

/// The number of reads in flight for each thread. `line`: elements have one constant step.
template <int V, bool line>
inline constexpr int batch = (V == 1 ? 8 : 4) / (line ? 1 : 2);

/// Reduces the elements of one thread: vectors of V at the indices begin, begin + step, … before `end`, which
/// `walk` maps to offsets. Each of the V columns has its own total.
template <class F, int V, bool line>
__device__ __forceinline__ void fold_numbers(const typename F::Element* in, int64_t begin, int64_t end,
                                             int64_t step, const StridedWalk& walk,
                                             typename F::Total (&totals)[V]) {
  constexpr int batch = reduction::batch<V, line>;
  using Element = typename F::Element;
  using Part = typename F::Part;
  using Total = typename F::Total;
  const auto read = [&](int64_t number) {
    const int64_t at = line ? number * walk.step[0] : walk.offset(number);
    return *reinterpret_cast<const Several<Element, V>*>(in + at);
  };
  int64_t number = begin;
  for (; number + (batch - 1) * step < end; number += batch * step) {
    Several<Element, V> x[batch];
#pragma unroll
    for (int k = 0; k < batch; ++k) x[k] = read(number + k * step);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      Part parts[batch];
#pragma unroll
      for (int k = 0; k < batch; ++k) parts[k] = static_cast<Part>(x[k].at[v]);
#pragma unroll
      for (int width = batch / 2; width > 0; width /= 2)
#pragma unroll
        for (int k = 0; k < width; ++k) parts[k] = F()(parts[k], parts[k + width]);
      totals[v] = F()(totals[v], static_cast<Total>(parts[0]));
    }
  }
  for (; number < end; number += step) {
    const Several<Element, V> x = read(number);
#pragma unroll
    for (int v = 0; v < V; ++v) totals[v] = F()(totals[v], static_cast<Total>(static_cast<Part>(x.at[v])));
  }
}

/// For outputs of few elements each: one thread for each output.
struct EachForm {
  int64_t outputs, count;
  StridedWalk kept, reduced;
  double divisor;
};

template <class F, bool line, class To>
__global__ void __launch_bounds__(threads_in_block)
    fold_each(const typename F::Element* __restrict__ in, To* __restrict__ out,
              const __grid_constant__ EachForm form) {
  for (int64_t o = grid_thread(); o < form.outputs; o += grid_threads()) {
    typename F::Total total[1] = {F::template none<typename F::Total>()};
    fold_numbers<F, 1, line>(in + form.kept.offset(o), 0, form.count, 1, form.reduced, total);
    out[o] = F::template finish<To>(total[0], form.divisor);
  }
}

struct RowsForm {
  int64_t rows;
  StridedWalk kept, reduced;  ///< the second in units of several elements
  int64_t units;              ///< in a row
  int64_t chunk;              ///< units that a group of threads folds
  int lanes;                  ///< threads in a group: a power of two up to 32, or the block
  double divisor;
};

template <class F, int V, bool line, class To>
__global__ void __launch_bounds__(threads_in_block)
    fold_rows(const typename F::Element* __restrict__ in, To* __restrict__ out,
              const __grid_constant__ RowsForm form) {
  using Total = typename F::Total;
  const int lane = static_cast<int>(threadIdx.x) & (form.lanes - 1);
  const int64_t groups = threads_in_block / form.lanes;  // for each block
  const int64_t begin = blockIdx.y * form.chunk, end = min(begin + form.chunk, form.units);
  // All threads of a block stay in the loop because of its barriers.
  for (int64_t base = blockIdx.x * groups; base < form.rows; base += gridDim.x * groups) {
    const int64_t row = base + threadIdx.x / form.lanes;
    Total totals[V];
#pragma unroll
    for (int v = 0; v < V; ++v) totals[v] = F::template none<Total>();
    if (row < form.rows)
      fold_numbers<F, V, line>(in + form.kept.offset(row), begin + lane, end, form.lanes, form.reduced,
                               totals);
#pragma unroll
    for (int v = 1; v < V; ++v) totals[0] = F()(totals[0], totals[v]);
    const Total total =
        form.lanes == threads_in_block ? fold_block(totals[0], F()) : fold_lanes(totals[0], form.lanes, F());
    if (lane == 0 && row < form.rows)
      out[blockIdx.y * form.rows + row] = F::template finish<To>(total, form.divisor);
  }
}

struct ColumnsForm {
  int64_t outputs;
  int64_t units, in_step, out_step;  ///< outputs that are neighbours, several elements each
  int64_t outer;                     ///< how often there are as many
  StridedWalk outer_in, outer_out, reduced;
  int64_t count;       ///< elements of each output
  int64_t chunk;       ///< those which a block folds
  int64_t tiles_wide;  ///< blocks along the units
  int lanes;           ///< threads along the units: a power of two up to 32
  double divisor;
};

template <class F, int V, bool line, class To>
__global__ void __launch_bounds__(threads_in_block)
    fold_columns(const typename F::Element* __restrict__ in, To* __restrict__ out,
                 const __grid_constant__ ColumnsForm form) {
  using Total = typename F::Total;
  __shared__ Total shared[V][threads_in_block];
  const int t = static_cast<int>(threadIdx.x), lane = t & (form.lanes - 1), y = t / form.lanes;
  const int height = threads_in_block / form.lanes;
  const int64_t begin = blockIdx.y * form.chunk, end = min(begin + form.chunk, form.count);
  for (int64_t tile = blockIdx.x; tile < form.outer * form.tiles_wide; tile += gridDim.x) {
    const int64_t outer = divide(tile, form.tiles_wide);
    const int64_t unit = (tile - outer * form.tiles_wide) * form.lanes + lane;
    Total totals[V];
#pragma unroll
    for (int v = 0; v < V; ++v) totals[v] = F::template none<Total>();
    if (unit < form.units)
      fold_numbers<F, V, line>(in + form.outer_in.offset(outer) + unit * form.in_step, begin + y, end, height,
                               form.reduced, totals);
#pragma unroll
    for (int v = 0; v < V; ++v) shared[v][t] = totals[v];
    for (int half = height / 2; half > 0; half /= 2) {
      __syncthreads();
      if (y < half)
#pragma unroll
        for (int v = 0; v < V; ++v) shared[v][t] = F()(shared[v][t], shared[v][t + half * form.lanes]);
    }
    if (y == 0 && unit < form.units) {
      To* to = out + blockIdx.y * form.outputs + form.outer_out.offset(outer);
#pragma unroll
      for (int v = 0; v < V; ++v)
        to[(unit * V + v) * form.out_step] = F::template finish<To>(shared[v][t], form.divisor);
    }
    __syncthreads();
  }
}

/// Returns true if every step except that of axis `except` is a multiple of `width`.
inline bool whole_steps(const Layout& layout, int64_t width, size_t except) {
  for (size_t i = 0; i < layout.shape.rank(); ++i)
    if (i != except && layout.strides[i] % width != 0) return false;
  return true;
}

inline Grid grid_of(int64_t blocks, int64_t chunks) {
  constexpr int64_t most = 1 << 30;
  return {dim3(static_cast<unsigned>(std::min(blocks, most)), static_cast<unsigned>(chunks)),
          dim3(threads_in_block)};
}

/// Memory for the totals of all chunks.
template <class Total>
Tensor memory_for(int64_t totals, Device device) {
  return Tensor({totals * static_cast<int64_t>(sizeof(Total))}, boolean, device);
}

/// The kernel for vectors or single elements, and for one reduced axis or several.
template <class F, class To>
auto rows_kernel(bool vectors, const StridedWalk& reduced) {
  constexpr int width = vector_width<typename F::Element>;
  const bool line = reduced.axes == 1;
  if (vectors) return line ? fold_rows<F, width, true, To> : fold_rows<F, width, false, To>;
  return line ? fold_rows<F, 1, true, To> : fold_rows<F, 1, false, To>;
}
template <class F, class To>
auto columns_kernel(bool vectors, const StridedWalk& reduced) {
  constexpr int width = vector_width<typename F::Element>;
  const bool line = reduced.axes == 1;
  if (vectors) return line ? fold_columns<F, width, true, To> : fold_columns<F, width, false, To>;
  return line ? fold_columns<F, 1, true, To> : fold_columns<F, 1, false, To>;
}

/// Launches the second kernel, which reduces the totals of chunks, [chunks, outputs].
template <class F, class To>
void launch_totals(const Tensor& totals, int64_t chunks, int64_t outputs, double divisor, To* out) {
  ColumnsForm form{};
  form.outputs = form.units = outputs;
  form.in_step = form.out_step = form.outer = 1;
  form.outer_in = form.outer_out = StridedWalk();
  form.reduced = StridedWalk();
  form.reduced.size[0] = chunks;
  form.reduced.step[0] = outputs;
  form.count = form.chunk = chunks;
  form.lanes = static_cast<int>(std::min<int64_t>(32, power_from(outputs)));
  form.tiles_wide = divide_up(outputs, form.lanes);
  form.divisor = divisor;
  launch(fold_columns<typename F::OfTotals, 1, true, To>, grid_of(form.tiles_wide, 1),
         static_cast<const typename F::Total*>(totals.address()), out, form);
}

template <class F>
Bound bind_each(const Form& form, void* out, double divisor) {
  using T = typename F::Element;
  const EachForm each{form.outputs, form.count, StridedWalk(form.kept), StridedWalk(form.reduced), divisor};
  return bound([=, in = form.data](RandomStream) {
    launch(each.reduced.axes == 1 ? fold_each<F, true, T> : fold_each<F, false, T>, grid_for(each.outputs),
           static_cast<const T*>(in), static_cast<T*>(out), each);
  });
}

template <class F>
Bound bind_rows(const Form& form, Tensor& output, double divisor) {
  using T = typename F::Element;
  using Total = typename F::Total;
  constexpr int width = vector_width<T>;
  const size_t inner = form.reduced.shape.rank() - 1;
  const bool vectors =
      form.reduced.strides[inner] == 1 && in_vectors<T>(form.data, form.reduced.shape.dims()[inner]) &&
      whole_steps(form.reduced, width, inner) && whole_steps(form.kept, width, form.kept.shape.rank());
  RowsForm rows{form.outputs, StridedWalk(form.kept), StridedWalk(form.reduced), form.count, 0, 0, divisor};
  if (vectors) {
    rows.reduced.size[0] /= width;
    rows.reduced.step[0] = width;
    rows.units /= width;
  }
  const int64_t busy = int64_t{limits().multiprocessors} * 8;
  const bool by_block = rows.units > (rows.rows < busy ? 64 : 256);
  rows.lanes = by_block ? threads_in_block : static_cast<int>(std::min<int64_t>(32, power_from(rows.units)));
  const int64_t useful = rows.units / (threads_in_block * 8), wanted = divide_up(busy, rows.rows);
  const int64_t chunks = by_block && wanted > 1 ? std::clamp<int64_t>(useful, 1, wanted) : 1;
  rows.chunk = divide_up(rows.units, chunks);
  const int64_t used = divide_up(rows.units, rows.chunk);
  const Grid grid = grid_of(divide_up(rows.rows, threads_in_block / rows.lanes), used);
  const T* in = static_cast<const T*>(form.data);
  T* out = static_cast<T*>(output.address());
  if (used == 1)
    return bound(
        [=](RandomStream) { launch(rows_kernel<F, T>(vectors, rows.reduced), grid, in, out, rows); });
  rows.divisor = 1;
  return bound([=, totals = memory_for<Total>(used * rows.rows, output.device())](RandomStream) {
    launch(rows_kernel<F, Total>(vectors, rows.reduced), grid, in, static_cast<Total*>(totals.address()),
           rows);
    launch_totals<F, T>(totals, used, rows.rows, divisor, out);
  });
}

template <class F>
Bound bind_columns(const Form& form, size_t axis, Tensor& output, double divisor) {
  using T = typename F::Element;
  using Total = typename F::Total;
  constexpr int width = vector_width<T>;
  ColumnsForm columns{};
  columns.outputs = form.outputs;
  columns.units = form.kept.shape.dims()[axis];
  columns.in_step = form.kept.strides[axis];
  columns.outer = form.outputs / columns.units;
  Layout outer_in = form.kept, outer_out(form.kept.shape);
  columns.out_step = outer_out.strides[axis];
  for (Layout* outer : {&outer_in, &outer_out}) {
    outer->shape.dims().erase(axis);
    outer->strides.erase(axis);
  }
  columns.outer_in = StridedWalk(outer_in);
  columns.outer_out = StridedWalk(outer_out);
  columns.reduced = StridedWalk(form.reduced);
  columns.count = form.count;
  columns.divisor = divisor;

  const int64_t processors = limits().multiprocessors;
  const bool vectors = columns.in_step == 1 && in_vectors<T>(form.data, columns.units) &&
                       whole_steps(form.reduced, width, form.reduced.shape.rank()) &&
                       whole_steps(form.kept, width, axis) &&
                       columns.units / (32 * width) * columns.outer >= processors;
  if (vectors) {
    columns.units /= width;
    columns.in_step = width;
  }
  columns.lanes = static_cast<int>(std::min<int64_t>(32, power_from(columns.units)));
  columns.tiles_wide = divide_up(columns.units, columns.lanes);
  const int64_t each = divide_up(columns.count, threads_in_block / columns.lanes);  // elements of each thread
  const int64_t wanted = divide_up(processors * 8, columns.tiles_wide * columns.outer);
  const int64_t chunks = each > 32 ? std::clamp<int64_t>(each / 16, 1, wanted) : 1;
  columns.chunk = divide_up(columns.count, chunks);
  const int64_t used = divide_up(columns.count, columns.chunk);
  const Grid grid = grid_of(columns.outer * columns.tiles_wide, used);
  const T* in = static_cast<const T*>(form.data);
  T* out = static_cast<T*>(output.address());
  if (used == 1)
    return bound([=](RandomStream) {
      launch(columns_kernel<F, T>(vectors, columns.reduced), grid, in, out, columns);
    });
  columns.divisor = 1;
  return bound([=, totals = memory_for<Total>(used * form.outputs, output.device()),
                outputs = form.outputs](RandomStream) {
    launch(columns_kernel<F, Total>(vectors, columns.reduced), grid, in,
           static_cast<Total*>(totals.address()), columns);
    launch_totals<F, T>(totals, used, outputs, divisor, out);
  });
}

template <class F>
Bound bind_fold(const Form& form, Tensor& output, double divisor) {
  const size_t axis = form.closest();
  const bool none_kept = axis == form.kept.shape.rank();
  const int64_t neighbours = none_kept ? 1 : form.kept.shape.dims()[axis];
  if (form.count <= 8) return bind_each<F>(form, output.address(), divisor);
  const int64_t step = form.reduced.strides.back();
  if (none_kept || (step != 0 && step < form.kept.strides[axis])) return bind_rows<F>(form, output, divisor);
  if (neighbours < 16 && form.count <= 64) return bind_each<F>(form, output.address(), divisor);
  return bind_columns<F>(form, axis, output, divisor);
}

}  // namespace espalier::cu::reduction
