// A recurrence as one kernel for all steps: a block has 16 units of the state of some rows of the batch,
// keeps the weights of these units in shared memory, and waits after each step for the blocks that have the
// other units of its rows.
#include "espalier/ops/recurrent/cuda/persistent_recurrence.h"

#include <vector>

#include "espalier/core/cuda/cooperative_launch.h"
#include "espalier/core/workspace.h"
#include "espalier/ops/matmul/matmul_precision.h"
#include "espalier/ops/recurrent/cuda/recurrence_operands.h"
#include "espalier/ops/recurrent/cuda/resident_product.cuh"
#include "espalier/ops/recurrent/gates.h"

namespace espalier::cu {

namespace {

constexpr int units_of_block = 16;
static_assert(units_of_block * resident_rows == resident_threads);

/// The rows of the steps: StepRows on the device.
struct StepTable {
  int64_t steps, batch;
  const int64_t* begins;   ///< of the steps by their positions, and the end; null if each has the whole batch
  const int64_t* lengths;  ///< null if there are none
  bool reverse;

  __device__ __forceinline__ int64_t position(int64_t k) const { return reverse ? steps - 1 - k : k; }
  __device__ __forceinline__ int64_t begin(int64_t k) const {
    return begins ? begins[position(k)] : position(k) * batch;
  }
  __device__ __forceinline__ int64_t rows(int64_t k) const {
    return begins ? begins[position(k) + 1] - begins[position(k)] : batch;
  }
  /// Whether row b counts in step k.
  __device__ __forceinline__ bool counts(int64_t k, int64_t b) const {
    return k >= 0 && b < rows(k) && (!lengths || position(k) < lengths[b]);
  }
};

/// What the passes have in common.
template <class T>
struct PersistentSteps {
  StepTable table;
  const T* weight;
  int64_t width, rows_of_block;
  size_t weight_bytes;  ///< in shared memory, before the scratch memory of products
  unsigned* arrived;    ///< a counter for each row of blocks, in cache lines of their own

  __device__ __forceinline__ BlockBarrier barrier() const {
    return BlockBarrier(arrived + blockIdx.y * counter_step, gridDim.x);
  }
  __device__ __forceinline__ int64_t first_unit() const { return int64_t{blockIdx.x} * units_of_block; }
  __device__ __forceinline__ int64_t first_row() const { return blockIdx.y * rows_of_block; }
  __device__ __forceinline__ int64_t end_row(int64_t k) const {
    return min(first_row() + rows_of_block, table.rows(k));
  }
  static constexpr int counter_step = 32;
};

template <class T>
struct PersistentForward : PersistentSteps<T> {
  gates::ForwardRow<T, Computed<T>, float> first;  ///< without s; biases may be null
  const T* h;                                      ///< the initial state
};
template <class T>
struct PersistentBackward : PersistentSteps<T> {
  gates::BackwardRow<T, Computed<T>> first;  ///< whose of_out may be null
  const T *h, *c;                            ///< the initial states
  T* h_before;                               ///< an output
};

/// A unit of a row in a step. Its operands are loaded before they are needed: those of a block's first rows
/// while it waits for others.
template <class T, class Cell>
struct ForwardUnit {
  T x[Cell::gates], h, c;

  __device__ __forceinline__ void load(const PersistentForward<T>& p, int64_t k, int64_t b, int64_t unit) {
#pragma unroll
    for (int gate = 0; gate < Cell::gates; ++gate)
      x[gate] = p.first.x[((p.table.begin(k) + b) * Cell::gates + gate) * p.width + unit];
    h = p.first.h[b * p.width + unit];
    if constexpr (Cell::has_c) c = p.first.c[b * p.width + unit];
  }
  /// With the sums of the product and the biases.
  __device__ __forceinline__ void finish(const PersistentForward<T>& p, int64_t k, int64_t b, int64_t unit,
                                         const float* sums, const T* bias_ih, const T* bias_hh) {
    const int64_t row = p.table.begin(k) + b, own = row * p.width + unit;
    const bool keeps = p.first.gates != nullptr;
    T* const gates = keeps ? p.first.gates + row * p.width * Cell::gates + unit : nullptr;
    T* const memory = keeps ? p.first.memory + own : nullptr;
    if (!p.table.counts(k, b)) {
      p.first.out[own] = T(0);
      if (!keeps) return;
      for (int gate = 0; gate < Cell::gates; ++gate) gates[gate * p.width] = T(0);
      *memory = T(0);
      return;
    }
    const gates::ForwardRow<T, Computed<T>, float> at{
        x, sums, bias_ih, bias_hh, &h, &c, p.first.out + own, gates, memory, p.width, 1};
    if (keeps)
      Cell::template forward<true>(at, 0);
    else
      Cell::template forward<false>(at, 0);
    p.first.h[b * p.width + unit] = h;
    if constexpr (Cell::has_c) p.first.c[b * p.width + unit] = c;
  }
};

template <class T, class Product, class Cell>
__global__ void __launch_bounds__(resident_threads)
    run_forward_steps(const __grid_constant__ PersistentForward<T> p) {
  constexpr int columns = Cell::gates * units_of_block;
  unsigned char* const weights = dynamic_shared<unsigned char>();
  unsigned char* const scratch = weights + p.weight_bytes;
  const int64_t width = p.width, first_unit = p.first_unit();
  Product::keep_weights(weights, width, [&](int column, int64_t k) {
    const int64_t unit = first_unit + column % units_of_block, gate = column / units_of_block;
    return unit < width && k < width ? p.weight[(gate * width + unit) * width + k] : T(0);
  });
  const int row = static_cast<int>(threadIdx.x) / units_of_block;
  const int column = static_cast<int>(threadIdx.x) % units_of_block;
  const int64_t unit = first_unit + column;
  T bias_ih[Cell::gates], bias_hh[Cell::gates];
#pragma unroll
  for (int gate = 0; gate < Cell::gates; ++gate) {
    const bool any = p.first.bias_ih && unit < width;
    bias_ih[gate] = any ? p.first.bias_ih[gate * width + unit] : T(0);
    bias_hh[gate] = any ? p.first.bias_hh[gate * width + unit] : T(0);
  }
  __syncthreads();
  BlockBarrier barrier = p.barrier();
  ForwardUnit<T, Cell> at;
  const auto load = [&](int64_t k, int64_t b) {
    if (b < p.end_row(k) && unit < width) at.load(p, k, b, unit);
  };
  load(0, p.first_row() + row);
  for (int64_t k = 0; k < p.table.steps; ++k) {
    if (k > 0) barrier.wait();
    const int64_t end = p.end_row(k);
    for (int64_t tile = p.first_row(); tile < end; tile += resident_rows) {
      const int64_t b = tile + row;
      if (tile > p.first_row()) load(k, b);
      Product::multiply(scratch, weights, width, [&](int r) -> const T* {
        if (!p.table.counts(k, tile + r)) return nullptr;
        return p.table.counts(k - 1, tile + r) ? p.first.out + (p.table.begin(k - 1) + tile + r) * width
                                               : p.h + (tile + r) * width;
      });
      __syncthreads();
      if (b < end && unit < width) {
        const PartialSums<columns> parts{reinterpret_cast<float*>(scratch)};
        float sums[Cell::gates];
#pragma unroll
        for (int gate = 0; gate < Cell::gates; ++gate)
          sums[gate] = parts.total(Product::parts, row, gate * units_of_block + column);
        at.finish(p, k, b, unit, sums, bias_ih, bias_hh);
      }
      __syncthreads();
    }
    if (k + 1 == p.table.steps) break;
    barrier.arrive();
    load(k + 1, p.first_row() + row);
  }
}

/// The same for the gradients of the gates.
template <class T, class Cell>
struct BackwardUnit {
  T gates[Cell::gates], memory, h_before, h_after, c_before, of_out;
  bool counts;

  __device__ __forceinline__ void load(const PersistentBackward<T>& p, int64_t k, int64_t b, int64_t unit) {
    counts = p.table.counts(k, b);
    if (!counts) return;
    const int64_t row = p.table.begin(k) + b, own = row * p.width + unit;
    const bool continued = p.table.counts(k - 1, b);
    const int64_t before = (continued ? p.table.begin(k - 1) + b : b) * p.width + unit;
    if constexpr (Cell::keeps_gates) {
#pragma unroll
      for (int gate = 0; gate < Cell::gates; ++gate)
        gates[gate] = p.first.gates[(row * Cell::gates + gate) * p.width + unit];
      memory = p.first.memory[own];
    }
    h_before = (continued ? p.first.h_after : p.h)[before];
    h_after = p.first.h_after[own];
    if constexpr (Cell::has_c) c_before = (continued ? p.first.memory : p.c)[before];
    of_out = p.first.of_out ? p.first.of_out[own] : T(0);
  }
  __device__ __forceinline__ void finish(const PersistentBackward<T>& p, int64_t k, int64_t b,
                                         int64_t unit) const {
    const int64_t row = p.table.begin(k) + b, own = row * p.width + unit;
    T* const of_x = p.first.of_x + row * p.width * Cell::gates + unit;
    T* const of_sums = Cell::separate_sums ? p.first.of_sums + row * p.width * Cell::gates + unit : nullptr;
    p.h_before[own] = counts ? h_before : T(0);
    if (!counts) {
      for (int gate = 0; gate < Cell::gates; ++gate) {
        of_x[gate * p.width] = T(0);
        if constexpr (Cell::separate_sums) of_sums[gate * p.width] = T(0);
      }
      return;
    }
    const int64_t state = b * p.width + unit;
    Cell::backward(
        gates::BackwardRow<T, Computed<T>>{gates, &memory, &h_before, &c_before, &h_after, &of_out,
                                           p.first.dh + state, Cell::has_c ? p.first.dc + state : nullptr,
                                           of_x, of_sums, p.width, 1},
        0);
  }
};

template <class T, class Product, class Cell>
__global__ void __launch_bounds__(resident_threads)
    run_backward_steps(const __grid_constant__ PersistentBackward<T> p) {
  unsigned char* const weights = dynamic_shared<unsigned char>();
  unsigned char* const scratch = weights + p.weight_bytes;
  const int64_t width = p.width, inner = Cell::gates * width;
  const int row = static_cast<int>(threadIdx.x) / units_of_block;
  const int j = static_cast<int>(threadIdx.x) % units_of_block;
  const int64_t first_unit = p.first_unit(), unit = first_unit + j;
  Product::keep_weights(weights, inner, [&](int column, int64_t k) {
    return first_unit + column < width && k < inner ? p.weight[k * width + first_unit + column] : T(0);
  });
  const T* const operand = Cell::separate_sums ? p.first.of_sums : p.first.of_x;
  BlockBarrier barrier = p.barrier();
  BackwardUnit<T, Cell> at;
  const auto load = [&](int64_t k, int64_t b) {
    if (b < p.end_row(k) && unit < width) at.load(p, k, b, unit);
  };
  load(p.table.steps - 1, p.first_row() + row);
  for (int64_t k = p.table.steps; k-- > 0;) {
    const int64_t begin = p.table.begin(k), end = p.end_row(k);
    for (int64_t b = p.first_row() + row; b < end; b += resident_rows) {
      if (b >= p.first_row() + resident_rows) load(k, b);
      if (unit < width) at.finish(p, k, b, unit);
    }
    barrier.arrive();
    if (k > 0) load(k - 1, p.first_row() + row);
    barrier.wait();
    for (int64_t tile = p.first_row(); tile < end; tile += resident_rows) {
      Product::multiply(scratch, weights, inner, [&](int r) -> const T* {
        const int64_t b = tile + r;
        return p.table.counts(k, b) ? operand + (begin + b) * inner : nullptr;
      });
      __syncthreads();
      const int64_t b = tile + row;
      if (unit < width && p.table.counts(k, b)) {
        const PartialSums<units_of_block> sums{reinterpret_cast<float*>(scratch)};
        T& dh = p.first.dh[b * width + unit];
        const float sum = sums.total(Product::parts, row, j);
        dh = static_cast<T>(Cell::separate_sums ? static_cast<float>(dh) + sum : sum);
      }
      __syncthreads();
    }
  }
}

/// Fewer steps do not make up for loading the weights.
constexpr int64_t least_steps = 4;
/// A step of more rows is mostly its product, for which cuBLASLt has larger tiles.
constexpr int64_t most_rows_of_block = 64;

/// How the kernel's blocks divide units (x) and rows (y), if they run at once.
struct PersistentGrid {
  Grid grid;
  int64_t rows_of_block = 0;
  size_t weight_bytes = 0;

  bool fits() const { return rows_of_block > 0; }
};
template <class Product, class... P>
PersistentGrid persistent_grid(void (*kernel)(P...), const StepRows& rows, int64_t width, int64_t inner) {
  PersistentGrid made;
  made.weight_bytes = Product::weight_bytes(inner);
  made.grid.shared = made.weight_bytes + Product::scratch_bytes;
  const int64_t across = divide_up(width, units_of_block),
                tiles = divide_up(rows.sizes().front(), resident_rows);
  const int64_t down = std::min(tiles, resident_blocks(kernel, resident_threads, made.grid.shared) / across);
  if (down == 0 || rows.steps() < least_steps) return made;
  const int64_t tiles_of_block = divide_up(tiles, down);
  if (tiles_of_block * resident_rows > most_rows_of_block) return made;
  made.rows_of_block = tiles_of_block * resident_rows;
  made.grid.blocks =
      dim3(static_cast<unsigned>(across), static_cast<unsigned>(divide_up(tiles, tiles_of_block)));
  made.grid.threads = dim3(resident_threads);
  return made;
}

/// Rows that lie one after another begin at multiples of 16 bytes.
bool rows_are_aligned(const void* start, int64_t width, size_t size) {
  return static_cast<size_t>(width) * size % 16 == 0 && reinterpret_cast<uintptr_t>(start) % 16 == 0;
}

/// What both passes have beside their operands.
class PersistentCall {
 public:
  PersistentCall(const RecurrenceForm& form, const ForwardOperands<Tensor>& in, const StepRows& rows,
                 const PersistentGrid& grid, Workspace& workspace)
      : grid_(grid),
        weight_(in.weight),
        lengths_(in.lengths),
        arrived_(workspace.take(Shape{grid.grid.blocks.y * PersistentSteps<float>::counter_step},
                                DType::int32, in.weight->device())),
        table_{rows.steps(), rows.sizes().front(), nullptr, nullptr, form.reverse},
        width_(in.weight->shape()[1]) {
    if (form.batch_sizes.empty()) return;
    std::vector<int64_t> begins{0};
    for (const int64_t size : form.batch_sizes) begins.push_back(begins.back() + size);
    const auto count = static_cast<int64_t>(begins.size());
    begins_ = tensor_from(std::move(begins), {count}).to(in.weight->device());
  }

  /// Prepares a run.
  template <class T>
  PersistentSteps<T> steps() {
    weight_.refresh(), lengths_.refresh();
    zero_elements(arrived_);
    StepTable table = table_;
    table.begins = begins_.defined() ? static_cast<const int64_t*>(begins_.address()) : nullptr;
    table.lengths = lengths_.start<int64_t>();
    return {table,
            weight_.start<T>(),
            width_,
            grid_.rows_of_block,
            grid_.weight_bytes,
            static_cast<unsigned*>(arrived_.address())};
  }
  const Grid& grid() const { return grid_.grid; }

 private:
  const PersistentGrid grid_;
  OptionalInput weight_, lengths_;
  Tensor arrived_, begins_;
  const StepTable table_;
  const int64_t width_;
};

template <class T, template <int> class ProductOf, class Cell>
Bound bind_persistent(const ForwardCall& call, const StepRows& rows, Workspace workspace) {
  using Product = ProductOf<Cell::gates * units_of_block>;
  constexpr auto kernel = run_forward_steps<T, Product, Cell>;
  const int64_t width = call.in.weight->shape()[1];
  const PersistentGrid grid = persistent_grid<Product>(kernel, rows, width, width);
  OptionalInput h(call.in.h);
  if (!grid.fits() || !rows_are_aligned(h.start<T>(), width, sizeof(T)) ||
      !rows_are_aligned(call.out->address(), width, sizeof(T)))
    return nullptr;
  return bound([call, h = std::move(h), x = OptionalInput(call.in.x),
                bias_ih = OptionalInput(call.in.bias_ih), bias_hh = OptionalInput(call.in.bias_hh),
                own = PersistentCall(call.form, call.in, rows, grid, workspace)](RandomStream) mutable {
    const PersistentSteps<T> steps = own.template steps<T>();
    x.refresh(), h.refresh(), bias_ih.refresh(), bias_hh.refresh();
    copy_elements(*call.in.h, *call.last_h);
    if (call.last_c) copy_elements(*call.in.c, *call.last_c);
    launch_cooperative(kernel, own.grid(),
                       PersistentForward<T>{steps,
                                            {x.template start<T>(), nullptr, bias_ih.template start<T>(),
                                             bias_hh.template start<T>(), target<T>(call.last_h),
                                             target<T>(call.last_c), target<T>(call.out),
                                             target<T>(call.gates), target<T>(call.memory), steps.width, 1},
                                            h.template start<T>()});
  });
}

template <class T, template <int> class ProductOf, class Cell>
Bound bind_persistent(const BackwardCall& call, const StepRows& rows, Workspace workspace) {
  using Product = ProductOf<units_of_block>;
  constexpr auto kernel = run_backward_steps<T, Product, Cell>;
  const int64_t width = call.in.weight->shape()[1];
  const PersistentGrid grid = persistent_grid<Product>(kernel, rows, width, width * Cell::gates);
  const Tensor& operand = Cell::separate_sums ? *call.of_sums : *call.of_x;
  if (!grid.fits() || !rows_are_aligned(operand.address(), width, sizeof(T))) return nullptr;
  return bound([call, h = OptionalInput(call.in.h), c = OptionalInput(call.in.c),
                out = OptionalInput(call.out), gates = OptionalInput(call.gates),
                memory = OptionalInput(call.memory), of_out = OptionalInput(call.of_out),
                own = PersistentCall(call.form, call.in, rows, grid, workspace)](RandomStream) mutable {
    const PersistentSteps<T> steps = own.template steps<T>();
    for (OptionalInput* each : {&h, &c, &out, &gates, &memory, &of_out}) each->refresh();
    copy_or_zero(call.of_last_h, *call.of_h);
    if (call.of_c) copy_or_zero(call.of_last_c, *call.of_c);
    launch_cooperative(kernel, own.grid(),
                       PersistentBackward<T>{steps,
                                             {gates.template start<T>(), memory.template start<T>(), nullptr,
                                              nullptr, out.template start<T>(), of_out.template start<T>(),
                                              target<T>(call.of_h), target<T>(call.of_c),
                                              target<T>(call.of_x), target<T>(call.of_sums), steps.width, 1},
                                             h.template start<T>(),
                                             c.template start<T>(),
                                             target<T>(call.h_before)});
  });
}

template <int columns>
using Float16Product = MatrixProduct<Float16, columns>;
template <int columns>
using BFloat16Product = MatrixProduct<BFloat16, columns>;
template <int columns>
using Tf32Product = MatrixProduct<float, columns>;

template <class T, template <int> class ProductOf, class Call>
Bound bind_cell(const Call& call, const StepRows& rows, const Workspace& workspace) {
  switch (call.form.cell) {
    case RecurrentCell::tanh:
      return bind_persistent<T, ProductOf, gates::Rnn<gates::TanhActivation>>(call, rows, workspace);
    case RecurrentCell::relu:
      return bind_persistent<T, ProductOf, gates::Rnn<gates::ReluActivation>>(call, rows, workspace);
    case RecurrentCell::gru: return bind_persistent<T, ProductOf, gates::Gru>(call, rows, workspace);
    case RecurrentCell::lstm: break;
  }
  return bind_persistent<T, ProductOf, gates::Lstm>(call, rows, workspace);
}

template <class Call>
Bound bind_product(const Call& call, DType dtype, const BindContext& context) {
  const StepRows rows = step_rows_of(call.form, call.in.x->shape());
  const Workspace workspace = Workspace::of(context);
  const bool matrices = limits().architecture >= least_capability_of_matrix_unit;
  if (dtype == DType::float32)
    return matrices && matmul_precision() != MatmulPrecision::ieee
               ? bind_cell<float, Tf32Product>(call, rows, workspace)
               : bind_cell<float, ScalarProduct>(call, rows, workspace);
  if (!matrices) return nullptr;
  if (dtype == DType::float16) return bind_cell<Float16, Float16Product>(call, rows, workspace);
  if (dtype == DType::bfloat16) return bind_cell<BFloat16, BFloat16Product>(call, rows, workspace);
  return nullptr;
}

}  // namespace

Bound bind_persistent_recurrence(const ForwardCall& call, const BindContext& context) {
  return bind_product(call, call.out->dtype(), context);
}
Bound bind_persistent_recurrence(const BackwardCall& call, const BindContext& context) {
  return bind_product(call, call.of_x->dtype(), context);
}

}  // namespace espalier::cu
