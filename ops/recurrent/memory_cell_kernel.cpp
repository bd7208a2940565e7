#include "espalier/ops/recurrent/memory_cell_kernel.h"

#include <vector>

#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/ops/recurrent/gates.h"
#include "espalier/ops/recurrent/memory_cell_call.h"

namespace espalier {

namespace {

/// The rows of inputs, copied where they have no single distance.
template <class T>
class CellInputs {
 public:
  explicit CellInputs(const KernelCall& call) : call_(call) { copies_.reserve(call.inputs.size()); }
  CellRows<T> operator()(size_t i) {
    const Tensor* input = call_.inputs[i];
    std::optional<int64_t> step = distance_of_rows(input->layout());
    if (!step) {
      copies_.push_back(input->contiguous_copy());
      input = &copies_.back();
      step = distance_of_rows(input->layout());
    }
    return {static_cast<const T*>(input->address()), *step};
  }

 private:
  const KernelCall& call_;
  std::vector<Tensor> copies_;
};

/// The pre-activations of a gate, for all units of a row.
template <class T>
ESPALIER_HD void sum_of_gate(const MemoryCellForward<T>& f, int64_t b, int gate, T* to) {
  const int64_t n = f.width;
  const T* parts[MemoryCellForm::most_summands] = {};
  int count = 0;
  for (int p = 0; p < f.summands; ++p)
    if (f.blocks[p][gate] >= 0) parts[count++] = f.sums[p].row(b) + f.blocks[p][gate] * n;
  const T* x = parts[0];
  if (count == 1) {
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) to[j] = x[j];
    return;
  }
  const T* y = parts[1];
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) to[j] = x[j] + y[j];
  for (int p = 2; p < count; ++p) {
    const T* z = parts[p];
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) to[j] += z[j];
  }
}

/// One row; `gates` takes the values of its gates.
template <class T>
ESPALIER_HD void cell_forward_row(const MemoryCellForward<T>& f, int64_t b, T* gates) {
  const int64_t n = f.width;
  const int last = f.gates() - 1;
  for (int gate = 0; gate <= last; ++gate) sum_of_gate(f, b, gate, gates + gate * n);
#pragma GCC ivdep
  for (int64_t j = 0; j < last * n; ++j) gates[j] = gates::sigmoid(gates[j]);
  const T *i = gates, *o = gates + n;
  T *g = gates + last * n, *c = f.c + b * n, *h = f.h + b * n;
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    g[j] = gates::tanh(g[j]);
    c[j] = i[j] * g[j];
  }
  for (int k = 0; k < f.memories; ++k) {
    const T *forget = gates + (2 + k) * n, *before = f.memory[k].row(b);
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) c[j] += forget[j] * before[j];
  }
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) h[j] = o[j] * gates::tanh(c[j]);
}

/// One row; `of_gates` takes the gradients of the pre-activations, and `of_cell` that of the cell.
template <class T>
ESPALIER_HD void cell_backward_row(const MemoryCellBackward<T>& r, int64_t b, T* of_gates, T* of_cell) {
  const int64_t n = r.width;
  const int last = r.gates() - 1;
  const T* gates = r.gates_in.row(b);
  const T *i = gates, *o = gates + n, *g = gates + last * n, *c = r.c.row(b);
  const T *of_h = r.of_h.row(b), *of_c = r.of_c.row(b);
  T *of_i = of_gates, *of_o = of_gates + n, *of_g = of_gates + last * n;
  if (r.of_h.first) {
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      const T t = gates::tanh(c[j]), arrived = of_h[j];
      of_cell[j] = arrived * o[j] * (T(1) - t * t);
      of_o[j] = arrived * t * o[j] * (T(1) - o[j]);
    }
  } else {
    for (int64_t j = 0; j < n; ++j) of_cell[j] = of_o[j] = T(0);
  }
  if (r.of_c.first) {
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) of_cell[j] += of_c[j];
  }
#pragma GCC ivdep
  for (int64_t j = 0; j < n; ++j) {
    of_i[j] = of_cell[j] * g[j] * i[j] * (T(1) - i[j]);
    of_g[j] = of_cell[j] * i[j] * (T(1) - g[j] * g[j]);
  }
  for (int k = 0; k < r.memories; ++k) {
    const T *forget = gates + (2 + k) * n, *before = r.memory[k].row(b);
    T *of_forget = of_gates + (2 + k) * n, *of_before = r.of_memory[k] + b * n;
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      of_forget[j] = of_cell[j] * before[j] * forget[j] * (T(1) - forget[j]);
      of_before[j] = of_cell[j] * forget[j];
    }
  }
  for (int p = 0; p < r.summands; ++p) {
    for (int block = 0; block < r.block_count[p]; ++block) {
      T* to = r.of_sums[p] + (b * r.block_count[p] + block) * n;
      bool written = false;
      for (int gate = 0; gate <= last; ++gate) {
        if (r.blocks[p][gate] != block) continue;
        const T* from = of_gates + gate * n;
        if (written) {
#pragma GCC ivdep
          for (int64_t j = 0; j < n; ++j) to[j] += from[j];
        } else {
#pragma GCC ivdep
          for (int64_t j = 0; j < n; ++j) to[j] = from[j];
        }
        written = true;
      }
      if (!written)
        for (int64_t j = 0; j < n; ++j) to[j] = T(0);
    }
  }
}

/// Rows that are worth a thread: an element of a gate costs about as much as 8 of a pointwise op.
int64_t cell_rows_for_a_thread(int64_t width) { return std::max<int64_t>(1, 4096 / width); }

}  // namespace

void run_memory_cell(const Op& op, const KernelCall& call) {
  visit(call.outputs[0]->dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_floating_point_v<T>) {
      CellInputs<T> rows_of(call);
      const MemoryCellForward<T> f = detail::memory_cell_forward<T>(op, call, rows_of);
      const int64_t all = f.gates() * f.width;
      parallel_for(f.rows, cell_rows_for_a_thread(f.width), [&](int64_t from, int64_t to) {
        std::vector<T> scratch(f.gates_out ? 0 : static_cast<size_t>(all));
        for (int64_t b = from; b < to; ++b) {
          T* gates = f.gates_out ? f.gates_out + b * all : scratch.data();
          vectorized([ p = &f, b, gates ]()
                         __attribute__((always_inline)) { cell_forward_row(*p, b, gates); });
        }
      });
    }
  });
}

void run_memory_cell_gradient(const Op& op, const KernelCall& call) {
  visit(call.outputs[0]->dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_floating_point_v<T>) {
      CellInputs<T> rows_of(call);
      const MemoryCellBackward<T> r = detail::memory_cell_backward<T>(op, call, rows_of);
      const int64_t all = r.gates() * r.width;
      parallel_for(r.rows, cell_rows_for_a_thread(r.width), [&](int64_t from, int64_t to) {
        std::vector<T> scratch(static_cast<size_t>(all + r.width));
        for (int64_t b = from; b < to; ++b)
          vectorized([ p = &r, b, own = scratch.data(), all ]()
                         __attribute__((always_inline)) { cell_backward_row(*p, b, own, own + all); });
      });
    }
  });
}

}  // namespace espalier
