#include "espalier/core/cpu/widen.h"

#include <algorithm>

#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/strided_loop.h"
#include "espalier/core/cpu/vectorize.h"

namespace espalier {

namespace {

constexpr int64_t grain = 32 * 1024;  // elements that pay for a thread

template <class To, class From>
void convert(To* out, const From* in, int64_t n) {
  parallel_for(n, grain, [=](int64_t begin, int64_t end) {
    vectorized([=]() __attribute__((always_inline)) {
      for (int64_t i = begin; i < end; ++i) out[i] = static_cast<To>(in[i]);
    });
  });
}

template <class F>
void visit_half(DType dtype, F&& f) {
  if (dtype == DType::float16)
    f(TypeTag<Float16>{});
  else
    f(TypeTag<BFloat16>{});
}

/// The elements in float32. An axis along which one is repeated repeats one of the copy.
Tensor widened(const Tensor& x) {
  if (!x.defined()) return Tensor(StoragePtr(), x.layout(), DType::float32);
  Tensor once = x;
  for (size_t axis = 0; axis < x.rank(); ++axis)
    if (x.strides()[axis] == 0 && x.shape().dims()[axis] > 1)
      once = once.slice(static_cast<int64_t>(axis), 0, 1);
  once = once.contiguous_copy();
  Tensor wide(once.shape(), DType::float32);
  visit_half(x.dtype(), [&]<class T>(TypeTag<T>) {
    convert(static_cast<float*>(wide.address()), static_cast<const T*>(once.address()), wide.elements());
  });
  return Tensor(wide.storage(), broadcast_layout(wide.layout(), x.shape()), DType::float32);
}

}  // namespace

bool needs_widening(const Op& op, const KernelCall& call) {
  const auto half = [](const Tensor* t) { return is_half(t->dtype()); };
  return (std::any_of(call.inputs.begin(), call.inputs.end(), half) ||
          std::any_of(call.outputs.begin(), call.outputs.end(), half)) &&
         !op.traits().takes_halves && !op.runs_everywhere();
}

void run_widened(const Op& op, const KernelCall& call) {
  std::vector<Tensor> inputs, outputs;
  inputs.reserve(call.inputs.size());
  outputs.reserve(call.outputs.size());
  KernelCall wide = call;
  wide.inputs.clear();
  wide.outputs.clear();
  for (size_t k = 0; k < call.inputs.size(); ++k) {
    const Tensor& x = *call.inputs[k];
    if (!is_half(x.dtype())) {
      wide.inputs.push_back(&x);
      continue;
    }
    inputs.push_back(widened(op.reads_elements(k) ? x : Tensor(StoragePtr(), x.layout(), x.dtype())));
    wide.inputs.push_back(&inputs.back());
  }
  for (Tensor* y : call.outputs) {
    if (is_half(y->dtype())) outputs.emplace_back(y->shape(), DType::float32);
    wide.outputs.push_back(is_half(y->dtype()) ? &outputs.back() : y);
  }
  op.run_cpu(wide);
  size_t next = 0;
  for (Tensor* y : call.outputs) {
    if (!is_half(y->dtype())) continue;
    const Tensor& result = outputs[next++];
    visit_half(y->dtype(), [&]<class T>(TypeTag<T>) {
      convert(static_cast<T*>(y->address()), static_cast<const float*>(result.address()), y->elements());
    });
  }
}

}  // namespace espalier
