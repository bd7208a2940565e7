// Connectionist temporal classification: a block for each row of the batch walks through its steps, with
// threads for the states. Shares of a class are added up in the order of its states.
#include <cmath>

#include "espalier/ops/ctc/ctc_number.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/index_list.h"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

/// The inputs that all ops have.
struct CtcBatch {
  IndexList targets, input_lengths, target_lengths;
  int64_t batch, steps, classes, labels, blank;
  bool zero_infinity;

  __device__ int64_t stride() const { return 2 * labels + 1; }
  __device__ int64_t steps_of(int64_t row) const { return input_lengths.at(row, steps + 1, false); }
  __device__ int64_t labels_of(int64_t row) const { return target_lengths.at(row, labels + 1, false); }
  /// The class of a state. Reports a label that is no class or the blank.
  __device__ int64_t class_of(int64_t row, int64_t state) const {
    if (state % 2 == 0) return blank;
    const int64_t label = targets.at(row * labels + state / 2, classes, false);
    if (label == blank) targets.report.resolve(label, 0, false);
    return label;
  }
};

/// log of probabilities, in the order of the rows.
template <class T>
struct Emissions {
  using Number = double;
  const T* x;
  __device__ Number at(int64_t place) const {
    return static_cast<double>(static_cast<Computed<T>>(x[place]));
  }
};
/// The same with a direction.
template <class T>
struct DirectedEmissions {
  using Number = ctc::Dual;
  const T *x, *direction;
  __device__ Number at(int64_t place) const {
    return {static_cast<double>(static_cast<Computed<T>>(x[place])),
            static_cast<double>(static_cast<Computed<T>>(direction[place]))};
  }
};

/// What the block of a row has in device memory.
template <class N>
struct CtcScratch {
  N* behind;       ///< [batch, 2, states]: of two steps
  double* shares;  ///< [batch, states]
  int64_t* next;   ///< [batch, labels]: the next label of the class, or −1
  bool* first;     ///< [batch, labels]: whether it is the first of its class
};

template <class N>
__device__ N state_or_nothing(const N* row, int64_t state, int64_t states) {
  return state >= 0 && state < states ? row[state] : ctc::nothing<N>();
}
/// 0 if a state may follow the second before it, else −∞.
__device__ double skip(const CtcBatch& b, int64_t row, int64_t state, int64_t states) {
  const bool may =
      state >= 3 && state < states && state % 2 == 1 && b.class_of(row, state) != b.class_of(row, state - 2);
  return may ? 0 : ctc::nothing<double>();
}

/// log of the probability of all alignments of a row, from its last step.
template <class N>
__device__ N total_of(const N* alphas, int64_t steps, int64_t states, int64_t stride) {
  if (steps == 0) return states == 1 ? ctc::certain<N>() : ctc::nothing<N>();
  const N* last = alphas + (steps - 1) * stride;
  return ctc::sum_of(last[states - 1], state_or_nothing(last, states - 2, states), ctc::nothing<N>(), 0);
}

/// Writes the beginnings of a row. All threads of the block must call it, and may read them afterwards.
template <class E>
__device__ void forward_row(const CtcBatch& b, int64_t row, const E& emissions, typename E::Number* alphas) {
  using N = typename E::Number;
  const int64_t steps = b.steps_of(row), states = 2 * b.labels_of(row) + 1, stride = b.stride();
  for (int64_t t = 0; t < steps; ++t) {
    N* out = alphas + t * stride;
    const N* before = out - stride;
    for (int64_t s = threadIdx.x; s < states; s += blockDim.x) {
      const N e = emissions.at((row * b.steps + t) * b.classes + b.class_of(row, s));
      out[s] = t == 0 ? (s < 2 ? e : ctc::nothing<N>())
                      : ctc::times(
                            e, ctc::sum_of(before[s], state_or_nothing(before, s - 1, states),
                                           state_or_nothing(before, s - 2, states), skip(b, row, s, states)));
    }
    __syncthreads();
  }
}

/// Writes −slope · the shares of the classes at each step. All threads of the block must call it.
template <class E, class T>
__device__ void backward_row(const CtcBatch& b, int64_t row, const E& emissions,
                             const typename E::Number* alphas, typename E::Number total, double slope,
                             const CtcScratch<typename E::Number>& scratch, T* out) {
  using N = typename E::Number;
  const int64_t steps = b.steps_of(row), labels = b.labels_of(row), states = 2 * labels + 1,
                stride = b.stride(), thread = threadIdx.x, all = blockDim.x;
  N* behind = scratch.behind + row * 2 * stride;
  double* shares = scratch.shares + row * stride;
  int64_t* next = scratch.next + row * b.labels;
  bool* first = scratch.first + row * b.labels;
  for (int64_t i = thread; i < labels; i += all) {
    const int64_t own = b.class_of(row, 2 * i + 1);
    int64_t k = i + 1;
    while (k < labels && b.class_of(row, 2 * k + 1) != own) ++k;
    next[i] = k < labels ? k : -1;
    k = i - 1;
    while (k >= 0 && b.class_of(row, 2 * k + 1) != own) --k;
    first[i] = k < 0;
  }
  for (int64_t t = steps - 1; t >= 0; --t) {
    N *now = behind + (t % 2) * stride, *later = behind + (1 - t % 2) * stride;
    const int64_t after = (row * b.steps + t + 1) * b.classes;
    const auto emitted = [&](int64_t s) {
      return s < states ? ctc::times(later[s], emissions.at(after + b.class_of(row, s))) : ctc::nothing<N>();
    };
    double blanks = 0;
    for (int64_t s = thread; s < states; s += all) {
      now[s] = t + 1 == steps
                   ? (s + 2 >= states ? ctc::certain<N>() : ctc::nothing<N>())
                   : ctc::sum_of(emitted(s), emitted(s + 1), emitted(s + 2), skip(b, row, s + 2, states));
      shares[s] = ctc::share(ctc::times(alphas[t * stride + s], now[s]), total);
      if (s % 2 == 0) blanks += shares[s];
    }
    blanks = fold_block(blanks, scalar::Add());
    T* to = out + (row * b.steps + t) * b.classes;
    for (int64_t c = thread; c < b.classes; c += all)
      to[c] = static_cast<T>(static_cast<Computed<T>>(c == b.blank ? -slope * blanks : 0.0));
    __syncthreads();
    for (int64_t i = thread; i < labels; i += all) {
      if (!first[i]) continue;
      double sum = 0;
      for (int64_t k = i; k >= 0; k = next[k]) sum += shares[2 * k + 1];
      to[b.class_of(row, 2 * i + 1)] = static_cast<T>(static_cast<Computed<T>>(-slope * sum));
    }
    __syncthreads();
  }
}

/// Fills the steps from `begin` to `end` of a row.
template <class T>
__device__ void fill_steps(const CtcBatch& b, int64_t row, int64_t begin, int64_t end, double number,
                           T* out) {
  for (int64_t i = begin * b.classes + threadIdx.x; i < end * b.classes; i += blockDim.x)
    out[row * b.steps * b.classes + i] = static_cast<T>(static_cast<Computed<T>>(number));
}

template <class T>
__global__ void __launch_bounds__(threads_in_block)
    ctc_forward(CtcBatch b, Emissions<T> emissions, T* __restrict__ losses, double* alphas) {
  for (int64_t row = blockIdx.x; row < b.batch; row += gridDim.x) {
    double* own = alphas + row * b.steps * b.stride();
    forward_row(b, row, emissions, own);
    if (threadIdx.x == 0) {
      const double total = total_of(own, b.steps_of(row), 2 * b.labels_of(row) + 1, b.stride());
      const bool left_out = b.zero_infinity && total == ctc::nothing<double>();
      losses[row] = static_cast<T>(static_cast<Computed<T>>(left_out ? 0 : -total));
    }
  }
}

/// The gradient of a row from its beginnings; of Duals the derivative of it.
template <class E, class T>
__device__ void gradient_row(const CtcBatch& b, int64_t row, const E& emissions,
                             const typename E::Number* alphas, double slope,
                             const CtcScratch<typename E::Number>& scratch, T* out) {
  const int64_t steps = b.steps_of(row);
  const auto total = total_of(alphas, steps, 2 * b.labels_of(row) + 1, b.stride());
  fill_steps(b, row, steps, b.steps, 0, out);
  if (ctc::value_of(total) == ctc::nothing<double>())
    fill_steps(b, row, 0, steps, b.zero_infinity ? 0 : NAN, out);
  else
    backward_row(b, row, emissions, alphas, total, slope, scratch, out);
}

template <class T>
__global__ void __launch_bounds__(threads_in_block)
    ctc_gradient(CtcBatch b, Emissions<T> emissions, const double* alphas, const T* __restrict__ g,
                 CtcScratch<double> scratch, T* out) {
  for (int64_t row = blockIdx.x; row < b.batch; row += gridDim.x) {
    const double slope = static_cast<double>(static_cast<Computed<T>>(g[row]));
    gradient_row(b, row, emissions, alphas + row * b.steps * b.stride(), slope, scratch, out);
  }
}

template <class T>
__global__ void __launch_bounds__(threads_in_block)
    ctc_curvature(CtcBatch b, DirectedEmissions<T> emissions, ctc::Dual* alphas,
                  CtcScratch<ctc::Dual> scratch, T* __restrict__ of_losses, T* out) {
  for (int64_t row = blockIdx.x; row < b.batch; row += gridDim.x) {
    ctc::Dual* own = alphas + row * b.steps * b.stride();
    forward_row(b, row, emissions, own);
    if (threadIdx.x == 0) {
      const ctc::Dual total = total_of(own, b.steps_of(row), 2 * b.labels_of(row) + 1, b.stride());
      const bool none = total.value == ctc::nothing<double>();
      const double slope = none ? (b.zero_infinity ? 0 : NAN) : -total.slope;
      of_losses[row] = static_cast<T>(static_cast<Computed<T>>(slope));
    }
    gradient_row(b, row, emissions, own, 1, scratch, out);
  }
}

/// The inputs as kernels need them.
class CtcInputs {
 public:
  CtcInputs(const Op& op, const KernelCall& call)
      : x_(*call.inputs[0]),
        targets_(*call.inputs[1]),
        input_lengths_(*call.inputs[2]),
        target_lengths_(*call.inputs[3]) {
    const Shape& x = call.inputs[0]->shape();
    batch = {index_list(call, *call.inputs[1], targets_, "ctc_loss"),
             index_list(call, *call.inputs[2], input_lengths_, "ctc_loss"),
             index_list(call, *call.inputs[3], target_lengths_, "ctc_loss"),
             x[0],
             x[1],
             x[2],
             call.inputs[1]->shape()[1],
             attribute<int64_t>(op, "blank"),
             attribute<bool>(op, "zero_infinity")};
  }
  void refresh() {
    x_.refresh();
    targets_.refresh();
    input_lengths_.refresh();
    target_lengths_.refresh();
  }
  const void* x() const { return x_.address(); }
  int64_t states() const { return 2 * batch.labels + 1; }
  Grid grid() const {
    return {dim3(static_cast<unsigned>(std::min<int64_t>(batch.batch, 1 << 30))), dim3(threads_in_block)};
  }

  CtcBatch batch;

 private:
  ContiguousInput x_, targets_, input_lengths_, target_lengths_;
};

/// Scratch memory for a call.
template <class N>
class CtcMemory {
 public:
  CtcMemory(const CtcInputs& in, Device device)
      : behind_(bytes(in.batch.batch * 2 * in.states() * sizeof(N)), boolean, device),
        shares_(bytes(in.batch.batch * in.states() * sizeof(double)), boolean, device),
        next_(bytes(in.batch.batch * in.batch.labels * sizeof(int64_t)), boolean, device),
        first_(bytes(in.batch.batch * in.batch.labels), boolean, device) {}
  CtcScratch<N> scratch() const {
    return {static_cast<N*>(behind_.address()), static_cast<double*>(shares_.address()),
            static_cast<int64_t*>(next_.address()), static_cast<bool*>(first_.address())};
  }

 private:
  static Shape bytes(size_t count) { return {static_cast<int64_t>(count)}; }
  Tensor behind_, shares_, next_, first_;
};

template <class F>
Bound bind_ctc(const KernelCall& call, F&& bind) {
  if (call.inputs[0]->shape()[0] == 0) return bound([](RandomStream) {});
  Bound result;
  visit_elements(call.outputs[0]->dtype(), [&]<class T>(TypeTag<T> tag) {
    if constexpr (is_real_element<T>) result = bind(tag);
  });
  return result;
}

Bound bind_ctc_loss(const Op& op, const KernelCall& call) {
  return bind_ctc(call, [&]<class T>(TypeTag<T>) {
    return bound([in = CtcInputs(op, call), losses = static_cast<T*>(call.outputs[0]->address()),
                  alphas = static_cast<double*>(call.outputs[1]->address())](RandomStream) mutable {
      in.refresh();
      launch(ctc_forward<T>, in.grid(), in.batch, Emissions<T>{static_cast<const T*>(in.x())}, losses,
             alphas);
    });
  });
}

Bound bind_ctc_loss_gradient(const Op& op, const KernelCall& call) {
  return bind_ctc(call, [&]<class T>(TypeTag<T>) {
    CtcInputs in(op, call);
    CtcMemory<double> memory(in, call.outputs[0]->device());
    return bound([in = std::move(in), memory = std::move(memory), alphas = ContiguousInput(*call.inputs[4]),
                  g = ContiguousInput(*call.inputs[5]),
                  out = static_cast<T*>(call.outputs[0]->address())](RandomStream) mutable {
      in.refresh();
      alphas.refresh();
      g.refresh();
      launch(ctc_gradient<T>, in.grid(), in.batch, Emissions<T>{static_cast<const T*>(in.x())},
             static_cast<const double*>(alphas.address()), static_cast<const T*>(g.address()),
             memory.scratch(), out);
    });
  });
}

Bound bind_ctc_loss_curvature(const Op& op, const KernelCall& call) {
  return bind_ctc(call, [&]<class T>(TypeTag<T>) {
    CtcInputs in(op, call);
    const Device device = call.outputs[0]->device();
    CtcMemory<ctc::Dual> memory(in, device);
    const int64_t numbers = in.batch.batch * in.batch.steps * in.states();
    return bound([in = std::move(in), memory = std::move(memory),
                  alphas = Tensor(Shape{numbers * static_cast<int64_t>(sizeof(ctc::Dual))}, boolean, device),
                  direction = ContiguousInput(*call.inputs[4]),
                  of_losses = static_cast<T*>(call.outputs[0]->address()),
                  out = static_cast<T*>(call.outputs[1]->address())](RandomStream) mutable {
      in.refresh();
      direction.refresh();
      launch(ctc_curvature<T>, in.grid(), in.batch,
             DirectedEmissions<T>{static_cast<const T*>(in.x()), static_cast<const T*>(direction.address())},
             static_cast<ctc::Dual*>(alphas.address()), memory.scratch(), of_losses, out);
    });
  });
}

}  // namespace

void add_ctc_kernels(KernelRegistry& kernels) {
  kernels.add("ctc_loss", bind_ctc_loss);
  kernels.add("ctc_loss_gradient", bind_ctc_loss_gradient);
  kernels.add("ctc_loss_curvature", bind_ctc_loss_curvature);
}

}  // namespace espalier::cu
