#include "espalier/ops/recurrent/recurrence_kernel.h"

#include <algorithm>
#include <cstring>

#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/vectorize.h"
#include "espalier/core/workspace.h"
#include "espalier/ops/recurrent/gates.h"
#include "espalier/ops/recurrent/step_product.h"

namespace espalier {

namespace {

/// Calls `f(TypeTag<Cell>{})`.
template <class F>
auto visit_cell(RecurrentCell cell, F&& f) {
  switch (cell) {
    case RecurrentCell::tanh: return f(TypeTag<gates::Rnn<gates::TanhActivation>>{});
    case RecurrentCell::relu: return f(TypeTag<gates::Rnn<gates::ReluActivation>>{});
    case RecurrentCell::gru: return f(TypeTag<gates::Gru>{});
    case RecurrentCell::lstm: break;
  }
  return f(TypeTag<gates::Lstm>{});
}
template <class F>
auto visit_real(DType dtype, F&& f) {
  return dtype == DType::float64 ? f(TypeTag<double>{}) : f(TypeTag<float>{});
}

/// Bytes that are scratch memory of both passes.
struct Scratch {
  Tensor product;  ///< [batch, columns of the product]
  Tensor zeros;    ///< for absent biases and gradients
};
struct ScratchSizes {
  StepProductSizes product;
  int64_t batch, zeros;

  ScratchSizes(const RecurrenceForm& form, const Spec& x, const Shape& weight, bool backward)
      : product{x.dtype, step_rows_of(form, x.shape).sizes(), weight[backward ? 0 : 1],
                weight[backward ? 1 : 0], !backward},
        batch(product.rows.empty() ? 0 : product.rows.front()),
        zeros(weight[0]) {}
  Spec product_spec() const { return {product.dtype, Shape{batch, product.columns}}; }
  Spec zeros_spec() const { return {product.dtype, Shape{zeros}}; }
  Scratch take(Workspace& workspace) const {
    return {workspace.take(product_spec().shape, product.dtype, cpu()),
            workspace.take(zeros_spec().shape, product.dtype, cpu())};
  }
  int64_t bytes() const {
    return Workspace::bytes_for(product_spec()) + Workspace::bytes_for(zeros_spec()) +
           StepProduct::workspace_bytes(product);
  }
};

/// Rows that are worth a thread: an element of a gate costs about as much as 8 of a pointwise op.
int64_t rows_for_a_thread(int64_t width) { return std::max<int64_t>(1, 4096 / std::max<int64_t>(1, width)); }

template <class T>
const T* start(const Tensor* tensor, const Tensor& zeros) {
  return static_cast<const T*>((tensor ? *tensor : zeros).address());
}
template <class T>
T* target(Tensor* tensor) {
  return tensor ? static_cast<T*>(tensor->address()) : nullptr;
}
void copy_or_zero(const Tensor* from, Tensor& to) { from ? copy_elements(*from, to) : zero_elements(to); }

void zero_row(void* row, int64_t bytes) { std::memset(row, 0, static_cast<size_t>(bytes)); }

/// Contiguous copies of what has other strides, renewed by each run.
class Contiguous {
 public:
  const Tensor* operator()(const Tensor* given) {
    if (!given || given->contiguous()) return given;
    copies_.push_back(std::make_unique<Tensor>(given->contiguous_copy()));
    return copies_.back().get();
  }

 private:
  std::vector<std::unique_ptr<Tensor>> copies_;
};

template <class T, class Cell>
class Forward : public BoundKernel {
 public:
  Forward(const ForwardCall& call, const ScratchSizes& sizes, Workspace workspace)
      : call_(call),
        rows_(step_rows_of(call.form, call.in.x->shape())),
        scratch_(sizes.take(workspace)),
        product_(sizes.product, workspace) {}

  void run(RandomStream) override {
    if (call_.gates)
      steps<true>();
    else
      steps<false>();
  }

 private:
  template <bool keeps>
  void steps() {
    Contiguous contiguous;
    const int64_t width = call_.in.weight->shape()[1], all = width * Cell::gates;
    const Tensor *weight = contiguous(call_.in.weight), *lengths = contiguous(call_.in.lengths);
    const int64_t* length = lengths ? static_cast<const int64_t*>(lengths->address()) : nullptr;
    zero_elements(scratch_.zeros);
    copy_elements(*call_.in.h, *call_.last_h);
    if (call_.last_c) copy_elements(*call_.in.c, *call_.last_c);
    product_.set_matrix(weight->address());
    const gates::ForwardRow<T, T> first{start<T>(contiguous(call_.in.x), scratch_.zeros),
                                        start<T>(&scratch_.product, scratch_.zeros),
                                        start<T>(contiguous(call_.in.bias_ih), scratch_.zeros),
                                        start<T>(contiguous(call_.in.bias_hh), scratch_.zeros),
                                        target<T>(call_.last_h),
                                        target<T>(call_.last_c),
                                        target<T>(call_.out),
                                        target<T>(call_.gates),
                                        target<T>(call_.memory),
                                        width,
                                        width};
    for (int64_t k = 0; k < rows_.steps(); ++k) {
      const int64_t begin = rows_.begin(k), position = rows_.position(k);
      product_.run(rows_.rows(k), first.h, scratch_.product.address());
      parallel_for(rows_.rows(k), rows_for_a_thread(width), [&](int64_t from, int64_t to) {
        for (int64_t b = from; b < to; ++b) {
          gates::ForwardRow<T, T> row = first;
          row.x += (begin + b) * all;
          row.s += b * all;
          row.h += b * width;
          if constexpr (Cell::has_c) row.c += b * width;
          row.out += (begin + b) * width;
          if constexpr (keeps) row.gates += (begin + b) * all, row.memory += (begin + b) * width;
          if (length && position >= length[b]) {
            skip<keeps>(row);
            continue;
          }
          vectorized([=]() __attribute__((always_inline)) {
            const int64_t n = row.width;
#pragma GCC ivdep
            for (int64_t j = 0; j < n; ++j) Cell::template forward<keeps>(row, j);
          });
        }
      });
    }
  }

  /// A step behind the end of a sequence.
  template <bool keeps>
  static void skip(const gates::ForwardRow<T, T>& row) {
    const auto bytes = row.width * static_cast<int64_t>(sizeof(T));
    zero_row(row.out, bytes);
    if constexpr (keeps) zero_row(row.gates, bytes * Cell::gates), zero_row(row.memory, bytes);
  }

  const ForwardCall call_;
  const StepRows rows_;
  Scratch scratch_;
  StepProduct product_;
};

template <class T, class Cell>
class Backward : public BoundKernel {
 public:
  Backward(const BackwardCall& call, const ScratchSizes& sizes, Workspace workspace)
      : call_(call),
        rows_(step_rows_of(call.form, call.in.x->shape())),
        scratch_(sizes.take(workspace)),
        product_(sizes.product, workspace) {}

  void run(RandomStream) override {
    Contiguous contiguous;
    const Tensor &zeros = scratch_.zeros, *weight = contiguous(call_.in.weight);
    zero_elements(scratch_.zeros);
    copy_or_zero(call_.of_last_h, *call_.of_h);
    if (call_.of_c) copy_or_zero(call_.of_last_c, *call_.of_c);
    product_.set_matrix(weight->address());
    width_ = weight->shape()[1];
    const Tensor* lengths = contiguous(call_.in.lengths);
    lengths_ = lengths ? static_cast<const int64_t*>(lengths->address()) : nullptr;
    h_ = start<T>(contiguous(call_.in.h), zeros);
    c_ = start<T>(contiguous(call_.in.c), zeros);
    const T* out = start<T>(contiguous(call_.out), zeros);
    of_out_ = call_.of_out ? start<T>(contiguous(call_.of_out), zeros) : nullptr;
    first_ = {start<T>(contiguous(call_.gates), zeros),
              start<T>(contiguous(call_.memory), zeros),
              out,
              nullptr,
              out,
              start<T>(nullptr, zeros),
              target<T>(call_.of_h),
              target<T>(call_.of_c),
              target<T>(call_.of_x),
              target<T>(call_.of_sums),
              width_,
              width_};
    for (int64_t k = rows_.steps(); k-- > 0;) step(k);
  }

 private:
  void step(int64_t k) {
    const int64_t count = rows_.rows(k), at = rows_.begin(k) * width_;
    const auto bytes = static_cast<size_t>(width_) * sizeof(T);
    T* const h_before = target<T>(call_.h_before) + at;
    parallel_for(count, rows_for_a_thread(width_), [&](int64_t from, int64_t to) {
      for (int64_t b = from; b < to; ++b) {
        const gates::BackwardRow<T, T> row = row_of(k, b);
        if (skips(k, b)) {  // the product writes over dh, so it waits in h_before
          std::memcpy(h_before + b * width_, row.dh, bytes);
          zero_row(row.of_x, static_cast<int64_t>(bytes) * Cell::gates);
          if constexpr (Cell::separate_sums) zero_row(row.of_sums, static_cast<int64_t>(bytes) * Cell::gates);
          continue;
        }
        std::memcpy(h_before + b * width_, row.h_before, bytes);
        vectorized([=]() __attribute__((always_inline)) {
          const int64_t n = row.width;
#pragma GCC ivdep
          for (int64_t j = 0; j < n; ++j) Cell::backward(row, j);
        });
      }
    });
    if constexpr (Cell::separate_sums) {
      T* more = static_cast<T*>(scratch_.product.address());
      product_.run(count, first_.of_sums + at * Cell::gates, more);
      vectorized([ sum = first_.dh, more, n = count * width_ ]() __attribute__((always_inline)) {
        for (int64_t i = 0; i < n; ++i) sum[i] += more[i];
      });
    } else {
      product_.run(count, first_.of_x + at * Cell::gates, first_.dh);
    }
    for (int64_t b = 0; b < count; ++b)
      if (skips(k, b)) {
        std::memcpy(first_.dh + b * width_, h_before + b * width_, bytes);
        zero_row(h_before + b * width_, static_cast<int64_t>(bytes));
      }
  }
  /// Whether the step is behind the end of sequence b.
  bool skips(int64_t k, int64_t b) const { return lengths_ && rows_.position(k) >= lengths_[b]; }
  gates::BackwardRow<T, T> row_of(int64_t k, int64_t b) const {
    const int64_t width = width_, own = (rows_.begin(k) + b) * width;
    const bool continued = b < rows_.continued(k) && !skips(k - 1, b);
    const int64_t before = continued ? (rows_.begin(k - 1) + b) * width : b * width;
    gates::BackwardRow<T, T> row = first_;
    row.h_before = (continued ? first_.h_after : h_) + before;
    row.h_after += own;
    if constexpr (Cell::keeps_gates) row.gates += own * Cell::gates, row.memory += own;
    if constexpr (Cell::has_c) {
      row.c_before = (continued ? first_.memory : c_) + before;
      row.dc += b * width;
    }
    if (of_out_) row.of_out = of_out_ + own;
    row.dh += b * width;
    row.of_x += own * Cell::gates;
    if constexpr (Cell::separate_sums) row.of_sums += own * Cell::gates;
    return row;
  }

  const BackwardCall call_;
  const StepRows rows_;
  Scratch scratch_;
  StepProduct product_;
  int64_t width_ = 0;
  const T *h_ = nullptr, *c_ = nullptr, *of_out_ = nullptr;
  const int64_t* lengths_ = nullptr;
  gates::BackwardRow<T, T> first_ = {};
};

template <template <class, class> class Kernel, class Call>
std::unique_ptr<BoundKernel> bind_kernel_of(const Call& call, const BindContext& context, bool backward) {
  const ScratchSizes sizes(call.form, call.in.x->spec(), call.in.weight->shape(), backward);
  return visit_real(call.in.x->dtype(), [&]<class T>(TypeTag<T>) {
    return visit_cell(call.form.cell, [&]<class Cell>(TypeTag<Cell>) -> std::unique_ptr<BoundKernel> {
      return std::make_unique<Kernel<T, Cell>>(call, sizes, Workspace::of(context));
    });
  });
}

}  // namespace

std::unique_ptr<BoundKernel> bind_recurrence(const ForwardCall& call, const BindContext& context) {
  return bind_kernel_of<Forward>(call, context, false);
}
std::unique_ptr<BoundKernel> bind_recurrence(const BackwardCall& call, const BindContext& context) {
  return bind_kernel_of<Backward>(call, context, true);
}

int64_t recurrence_workspace_bytes(const RecurrenceForm& form, const PlannedCall& call, bool backward) {
  const ScratchSizes sizes(form, *call.inputs[0], call.inputs[1]->shape, backward);
  if (call.device == DeviceType::cpu) return sizes.bytes();
  return Workspace::bytes_for({sizes.product.dtype, Shape{sizes.batch, sizes.zeros}}) +
         Workspace::bytes_for(sizes.zeros_spec());
}

}  // namespace espalier
