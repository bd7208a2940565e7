#include "espalier/core/cpu/widen.h"

#include <algorithm>

#include "espalier/core/cpu/cast_row.h"
#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/widen_blocks.h"

namespace espalier {

namespace {

constexpr int64_t grain = 32 * 1024;  // elements that pay for a thread

/// Contiguous tensors of one size.
void convert(const Tensor& in, Tensor& out) {
  const UnaryRow row = cast_row(in.dtype(), out.dtype());
  const auto* from = static_cast<const char*>(in.address());
  auto* to = static_cast<char*>(out.address());
  const auto read = static_cast<int64_t>(size_of(in.dtype())),
             written = static_cast<int64_t>(size_of(out.dtype()));
  parallel_for(in.elements(), grain, [=](int64_t begin, int64_t end) {
    row(end - begin, to + begin * written, from + begin * read, 1);
  });
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
  convert(once, wide);
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
  if (run_widened_in_blocks(op, call)) return;
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
    convert(outputs[next++], *y);
  }
}

}  // namespace espalier
