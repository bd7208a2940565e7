// Memory cells: one thread for each unit of a row.
#include <vector>

#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/recurrent/gates.h"
#include "espalier/ops/recurrent/memory_cell_call.h"

namespace espalier::cu {

namespace {

template <class T>
__global__ void __launch_bounds__(threads_in_block)
    memory_cell_forward(const __grid_constant__ MemoryCellForward<T> f) {
  using C = Computed<T>;
  const int64_t width = f.width, n = f.rows * width;
  const int last = f.gates() - 1;
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t b = divide(i, width), j = i - b * width;
    const auto gate = [&](int which) {
      C sum = C(0);
      for (int p = 0; p < f.summands; ++p) {
        const int block = f.blocks[p][which];
        if (block >= 0) sum += static_cast<C>(f.sums[p].row(b)[block * width + j]);
      }
      const C value = which == last ? gates::tanh(sum) : gates::sigmoid(sum);
      if (f.gates_out) f.gates_out[(b * f.gates() + which) * width + j] = static_cast<T>(value);
      return value;
    };
    C c = gate(0) * gate(last);
    for (int k = 0; k < f.memories; ++k) c += gate(2 + k) * static_cast<C>(f.memory[k].row(b)[j]);
    f.c[i] = static_cast<T>(c);
    f.h[i] = static_cast<T>(gate(1) * gates::tanh(c));
  }
}

template <class T>
__global__ void __launch_bounds__(threads_in_block)
    memory_cell_backward(const __grid_constant__ MemoryCellBackward<T> r) {
  using C = Computed<T>;
  const int64_t width = r.width, n = r.rows * width;
  const int last = r.gates() - 1;
  for (int64_t at = grid_thread(); at < n; at += grid_threads()) {
    const int64_t b = divide(at, width), j = at - b * width;
    const auto gate = [&](int which) { return static_cast<C>(r.gates_in.row(b)[which * width + j]); };
    const C i = gate(0), o = gate(1), g = gate(last), t = gates::tanh(static_cast<C>(r.c.row(b)[j]));
    const C of_h = r.of_h.first ? static_cast<C>(r.of_h.row(b)[j]) : C(0);
    C of_c = of_h * o * (C(1) - t * t);
    if (r.of_c.first) of_c += static_cast<C>(r.of_c.row(b)[j]);
    const auto of_gate = [&](int which) {
      if (which == 0) return of_c * g * i * (C(1) - i);
      if (which == 1) return of_h * t * o * (C(1) - o);
      if (which == last) return of_c * i * (C(1) - g * g);
      const C forget = gate(which);
      return of_c * static_cast<C>(r.memory[which - 2].row(b)[j]) * forget * (C(1) - forget);
    };
    for (int k = 0; k < r.memories; ++k) r.of_memory[k][at] = static_cast<T>(of_c * gate(2 + k));
    for (int p = 0; p < r.summands; ++p)
      for (int block = 0; block < r.block_count[p]; ++block) {
        C sum = C(0);
        for (int which = 0; which <= last; ++which)
          if (r.blocks[p][which] == block) sum += of_gate(which);
        r.of_sums[p][(b * r.block_count[p] + block) * width + j] = static_cast<T>(sum);
      }
  }
}

/// The rows of inputs; those without a single distance are copied by each run.
template <class T>
class CellInputs {
 public:
  explicit CellInputs(const KernelCall& call) : call_(call) { copies_.reserve(call.inputs.size()); }
  CellRows<T> operator()(size_t i) {
    const Tensor& input = *call_.inputs[i];
    if (const auto step = distance_of_rows(input.layout()))
      return {static_cast<const T*>(input.address()), *step};
    copies_.emplace_back(input);
    return {static_cast<const T*>(copies_.back().address()),
            input.shape().rank() > 1 ? input.shape()[-1] : 0};
  }
  std::vector<ContiguousInput> take() { return std::move(copies_); }

 private:
  const KernelCall& call_;
  std::vector<ContiguousInput> copies_;
};

template <class T, bool backward>
Bound bind_typed(const Op& op, const KernelCall& call) {
  CellInputs<T> rows_of(call);
  auto rows = [&] {
    if constexpr (backward)
      return espalier::detail::memory_cell_backward<T>(op, call, rows_of);
    else
      return espalier::detail::memory_cell_forward<T>(op, call, rows_of);
  }();
  return bound([rows, copies = rows_of.take()](RandomStream) mutable {
    if (rows.rows == 0) return;
    for (ContiguousInput& each : copies) each.refresh();
    const Grid grid = grid_for(rows.rows * rows.width);
    if constexpr (backward)
      launch(memory_cell_backward<T>, grid, rows);
    else
      launch(memory_cell_forward<T>, grid, rows);
  });
}

template <bool backward>
Bound bind_cell(const Op& op, const KernelCall& call, const BindContext&) {
  Bound made;
  visit_elements(call.outputs[0]->dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>) made = bind_typed<T, backward>(op, call);
  });
  return made;
}

}  // namespace

void add_memory_cell_kernels(KernelRegistry& kernels) {
  kernels.add("memory_cell", bind_cell<false>);
  kernels.add("memory_cell_gradient", bind_cell<true>);
}

}  // namespace espalier::cu
