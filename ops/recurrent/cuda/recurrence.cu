// Recurrences: one persistent kernel for all steps where there is such a kernel; elsewhere for each step a
// product with the weights by cuBLASLt, and one kernel for the gates of all rows.
#include <vector>

#include "espalier/core/workspace.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/matmul/cuda/cublaslt_product.h"
#include "espalier/ops/recurrent/cuda/persistent_recurrence.h"
#include "espalier/ops/recurrent/cuda/recurrence_operands.h"
#include "espalier/ops/recurrent/gates.h"

namespace espalier::cu {

namespace {

template <class T, class Cell, bool keeps>
__global__ void __launch_bounds__(threads_in_block)
    forward_step(const __grid_constant__ gates::ForwardRow<T, Computed<T>> first, int64_t begin, int64_t n,
                 const int64_t* lengths, int64_t position) {
  const int64_t width = first.width;
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t b = divide(i, width);
    gates::ForwardRow<T, Computed<T>> row = first;
    row.x += (begin + b) * width * Cell::gates;
    row.s += b * width * Cell::gates;
    row.h += b * width;
    if constexpr (Cell::has_c) row.c += b * width;
    row.out += (begin + b) * width;
    if constexpr (keeps) {
      row.gates += (begin + b) * width * Cell::gates;
      row.memory += (begin + b) * width;
    }
    const int64_t j = i - b * width;
    if (!lengths || position < lengths[b]) {
      Cell::template forward<keeps>(row, j);
      continue;
    }
    row.out[j] = T(0);
    if constexpr (keeps) {
      for (int64_t g = 0; g < Cell::gates; ++g) row.gates[g * width + j] = T(0);
      row.memory[j] = T(0);
    }
  }
}

/// The operands of a backward step.
template <class T>
struct BackwardStep {
  gates::BackwardRow<T, Computed<T>> first;
  const T *h, *c;   ///< the initial states
  const T* of_out;  ///< null if there is none
  T* h_before;      ///< an output
  T* sums;          ///< the operand of the product
  int64_t begin, begin_before, continued;
  const int64_t* lengths;  ///< null if there are none
  int64_t position, position_before;

  __device__ bool skips(int64_t b) const { return lengths && position >= lengths[b]; }
  __device__ bool skipped_before(int64_t b) const { return lengths && position_before >= lengths[b]; }
};

template <class T, class Cell>
__global__ void __launch_bounds__(threads_in_block)
    backward_step(const __grid_constant__ BackwardStep<T> step, int64_t n) {
  const int64_t width = step.first.width;
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t b = divide(i, width), j = i - b * width, own = (step.begin + b) * width;
    const bool continued = b < step.continued && !step.skipped_before(b);
    const int64_t before = continued ? (step.begin_before + b) * width : b * width;
    gates::BackwardRow<T, Computed<T>> row = step.first;
    row.h_before = (continued ? row.h_after : step.h) + before;
    row.h_after += own;
    if constexpr (Cell::has_c) {
      row.c_before = (continued ? row.memory : step.c) + before;
      row.dc += b * width;
    }
    if constexpr (Cell::keeps_gates) {
      row.gates += own * Cell::gates;
      row.memory += own;
    }
    if (step.of_out) row.of_out = step.of_out + own;
    row.dh += b * width;
    row.of_x += own * Cell::gates;
    if constexpr (Cell::separate_sums) row.of_sums += own * Cell::gates;
    if (step.skips(b)) {  // the product writes over dh, so it waits in h_before
      step.h_before[own + j] = row.dh[j];
      for (int64_t g = 0; g < Cell::gates; ++g) {
        row.of_x[g * width + j] = step.sums[b * width * Cell::gates + g * width + j] = T(0);
        if constexpr (Cell::separate_sums) row.of_sums[g * width + j] = T(0);
      }
      continue;
    }
    step.h_before[own + j] = row.h_before[j];
    Cell::backward(row, j);
    const T* from = Cell::separate_sums ? row.of_sums : row.of_x;
    for (int64_t g = 0; g < Cell::gates; ++g)
      step.sums[b * width * Cell::gates + g * width + j] = from[g * width + j];
  }
}

/// What has waited in h_before, behind the ends of sequences.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    keep_skipped(const __grid_constant__ BackwardStep<T> step, int64_t n) {
  const int64_t width = step.first.width;
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    if (!step.skips(divide(i, width))) continue;
    T& kept = step.h_before[step.begin * width + i];
    step.first.dh[i] = kept;
    kept = T(0);
  }
}

/// The products of the steps: the first rows of one tensor times the weights, into the first rows of another.
class StepProducts {
 public:
  StepProducts(const StepRows& rows, const Tensor& from, const Tensor& weight, const Tensor& to,
               bool transposed, double beta, const Workspace& workspace) {
    const std::vector<int64_t> sizes = rows.sizes();
    views_.reserve(2 * sizes.size());
    products_.reserve(sizes.size());
    for (const int64_t count : sizes) {
      views_.push_back(from.slice(0, 0, count));
      views_.push_back(to.slice(0, 0, count));
      products_.push_back({count, LtProduct(views_[views_.size() - 2], weight, views_.back(),
                                            {.transpose_a = false, .transpose_b = transposed},
                                            {.beta = beta, .workspace = workspace})});
      if (!products_.back().product.supported())
        throw UnsupportedError("recurrence: cuBLASLt has no product for " + from.shape().str() + " and " +
                               weight.shape().str());
    }
  }
  void run(int64_t rows) {
    for (Sized& each : products_)
      if (each.rows == rows) return each.product.run();
  }

 private:
  struct Sized {
    int64_t rows;
    LtProduct product;
  };
  std::vector<Tensor> views_;
  std::vector<Sized> products_;
};

template <class T, class Cell>
class Forward : public BoundKernel {
 public:
  Forward(const ForwardCall& call, Workspace workspace)
      : call_(call),
        rows_(step_rows_of(call.form, call.in.x->shape())),
        x_(call.in.x),
        bias_ih_(call.in.bias_ih),
        bias_hh_(call.in.bias_hh),
        lengths_(call.in.lengths),
        s_(workspace.take(Shape{call.in.h->shape()[0], call.in.weight->shape()[0]}, call.in.x->dtype(),
                          call.out->device())),
        zeros_(workspace.take(Shape{call.in.weight->shape()[0]}, call.in.x->dtype(), call.out->device())),
        products_(rows_, *call.last_h, *call.in.weight, s_, true, 0, workspace) {}

  void run(RandomStream) override {
    if (call_.gates)
      steps<true>();
    else
      steps<false>();
  }

 private:
  template <bool keeps>
  void steps() {
    x_.refresh(), bias_ih_.refresh(), bias_hh_.refresh(), lengths_.refresh();
    zero_elements(zeros_);
    copy_elements(*call_.in.h, *call_.last_h);
    if (call_.last_c) copy_elements(*call_.in.c, *call_.last_c);
    const int64_t width = call_.in.weight->shape()[1];
    const T* zeros = target<T>(&zeros_);
    const gates::ForwardRow<T, Computed<T>> first{x_.start<T>(),
                                                  target<T>(&s_),
                                                  bias_ih_.start<T>(zeros),
                                                  bias_hh_.start<T>(zeros),
                                                  target<T>(call_.last_h),
                                                  target<T>(call_.last_c),
                                                  target<T>(call_.out),
                                                  target<T>(call_.gates),
                                                  target<T>(call_.memory),
                                                  width,
                                                  width};
    for (int64_t k = 0; k < rows_.steps(); ++k) {
      const int64_t n = rows_.rows(k) * width;
      products_.run(rows_.rows(k));
      launch(forward_step<T, Cell, keeps>, grid_for(n), first, rows_.begin(k), n, lengths_.start<int64_t>(),
             rows_.position(k));
    }
  }

  const ForwardCall call_;
  const StepRows rows_;
  OptionalInput x_, bias_ih_, bias_hh_, lengths_;
  Tensor s_, zeros_;
  StepProducts products_;
};

template <class T, class Cell>
class Backward : public BoundKernel {
 public:
  Backward(const BackwardCall& call, Workspace workspace)
      : call_(call),
        rows_(step_rows_of(call.form, call.in.x->shape())),
        h_(call.in.h),
        c_(call.in.c),
        out_(call.out),
        gates_(call.gates),
        memory_(call.memory),
        of_out_(call.of_out),
        lengths_(call.in.lengths),
        sums_(workspace.take(Shape{call.in.h->shape()[0], call.in.weight->shape()[0]}, call.of_x->dtype(),
                             call.of_x->device())),
        zeros_(workspace.take(Shape{call.in.weight->shape()[0]}, call.of_x->dtype(), call.of_x->device())),
        products_(rows_, sums_, *call.in.weight, *call.of_h, false, Cell::separate_sums ? 1 : 0, workspace) {}

  void run(RandomStream) override {
    for (OptionalInput* each : {&h_, &c_, &out_, &gates_, &memory_, &of_out_, &lengths_}) each->refresh();
    zero_elements(zeros_);
    copy_or_zero(call_.of_last_h, *call_.of_h);
    if (call_.of_c) copy_or_zero(call_.of_last_c, *call_.of_c);
    const int64_t width = call_.in.weight->shape()[1];
    BackwardStep<T> step{{gates_.start<T>(), memory_.start<T>(), nullptr, nullptr, out_.start<T>(),
                          target<T>(&zeros_), target<T>(call_.of_h), target<T>(call_.of_c),
                          target<T>(call_.of_x), target<T>(call_.of_sums), width, width},
                         h_.start<T>(),
                         c_.start<T>(),
                         of_out_.start<T>(),
                         target<T>(call_.h_before),
                         target<T>(&sums_),
                         0,
                         0,
                         0,
                         lengths_.start<int64_t>(),
                         0,
                         0};
    for (int64_t k = rows_.steps(); k-- > 0;) {
      const int64_t n = rows_.rows(k) * width;
      step.begin = rows_.begin(k);
      step.begin_before = k ? rows_.begin(k - 1) : 0;
      step.continued = rows_.continued(k);
      step.position = rows_.position(k);
      step.position_before = rows_.position(k - 1);  // of no row of the first step
      launch(backward_step<T, Cell>, grid_for(n), step, n);
      products_.run(rows_.rows(k));
      if (step.lengths) launch(keep_skipped<T>, grid_for(n), step, n);
    }
  }

 private:
  const BackwardCall call_;
  const StepRows rows_;
  OptionalInput h_, c_, out_, gates_, memory_, of_out_, lengths_;
  Tensor sums_, zeros_;
  StepProducts products_;
};

template <template <class, class> class Kernel, class Call>
Bound bind_cells(const Call& call, const Tensor& out, const BindContext& context) {
  Bound made;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>) {
      const Workspace workspace = Workspace::of(context);
      switch (call.form.cell) {
        case RecurrentCell::tanh:
          made = std::make_unique<Kernel<T, gates::Rnn<gates::TanhActivation>>>(call, workspace);
          break;
        case RecurrentCell::relu:
          made = std::make_unique<Kernel<T, gates::Rnn<gates::ReluActivation>>>(call, workspace);
          break;
        case RecurrentCell::lstm: made = std::make_unique<Kernel<T, gates::Lstm>>(call, workspace); break;
        case RecurrentCell::gru: made = std::make_unique<Kernel<T, gates::Gru>>(call, workspace); break;
      }
    }
  });
  return made;
}

Bound bind_forward(const Op& op, const KernelCall& call, const BindContext& context) {
  const ForwardCall own = forward_call_of(op, call);
  if (own.out->elements() > 0) {
    if (Bound persistent = bind_persistent_recurrence(own, context)) return persistent;
    return bind_cells<Forward>(own, *own.out, context);
  }
  return bound([own](RandomStream) {
    copy_elements(*own.in.h, *own.last_h);
    if (own.last_c) copy_elements(*own.in.c, *own.last_c);
  });
}
Bound bind_backward(const Op& op, const KernelCall& call, const BindContext& context) {
  const BackwardCall own = backward_call_of(op, call);
  if (own.of_x->elements() > 0) {
    if (Bound persistent = bind_persistent_recurrence(own, context)) return persistent;
    return bind_cells<Backward>(own, *own.of_x, context);
  }
  return bound([own](RandomStream) {
    copy_or_zero(own.of_last_h, *own.of_h);
    if (own.of_c) copy_or_zero(own.of_last_c, *own.of_c);
  });
}

}  // namespace

void add_memory_cell_kernels(KernelRegistry& kernels);     // memory_cell.cu
void add_sequence_check_kernels(KernelRegistry& kernels);  // sequence_checks.cu
void add_recurrence_kernels(KernelRegistry& kernels) {
  add_memory_cell_kernels(kernels);
  add_sequence_check_kernels(kernels);
  kernels.add("recurrence", bind_forward);
  kernels.add("recurrence_gradient", bind_backward);
  kernels.add("padded_recurrence", bind_forward);
  kernels.add("padded_recurrence_gradient", bind_backward);
}

}  // namespace espalier::cu
