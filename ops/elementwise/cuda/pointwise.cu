// Binds pointwise functors and fills.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/elementwise/cuda/pointwise_kernels.cuh"

namespace espalier::cu {

namespace {

const PointwiseFunction* find(std::string_view functor) {
  static const PointwiseTable table = [] {
    PointwiseTable all;
    add_arithmetic(all);
    add_casts(all);
    add_comparisons(all);
    add_elementary(all);
    add_functions(all);
    add_activations(all);
    add_integers(all);
    return all;
  }();
  const auto found = table.find(functor);
  return found == table.end() ? nullptr : &found->second;
}

using Inputs = std::span<const Tensor* const>;

/// One evaluation of a functor over all elements.
struct PointwisePass {
  void (*launch)(const StridedLaunch& walk);
  SmallVector<StridedLaunch, 1> parts;

  PointwisePass(const PointwiseKernel& kernel, const Tensor& output, Inputs inputs)
      : launch(kernel.launch), parts(strided_launches(output, inputs, kernel.unit)) {}
  void operator()(RandomStream) const {
    for (const StridedLaunch& part : parts) launch(part);
  }
};

/// Folds contiguous tensors of the output's shape, several at a time.
Bound bind_fold_of_whole(const PointwiseKernel& kernel, const Tensor& output, Inputs inputs) {
  std::vector<FoldTerms> passes;
  for (size_t next = 0; next < inputs.size();) {
    FoldTerms terms{};
    if (next) terms.data[terms.count++] = output.address();
    while (next < inputs.size() && terms.count < FoldTerms::most)
      terms.data[terms.count++] = inputs[next++]->address();
    passes.push_back(terms);
  }
  return bound([fold = kernel.fold, passes = std::move(passes), out = output.address(),
                n = output.elements()](RandomStream) {
    for (const FoldTerms& terms : passes) fold(terms, out, n);
  });
}

Bound bind_fold(const PointwiseKernel& kernel, const Tensor& output, Inputs inputs) {
  if (output.elements() == 0) return bound([](RandomStream) {});
  const bool whole = std::all_of(inputs.begin(), inputs.end(), [&](const Tensor* in) {
    return in->shape() == output.shape() && in->contiguous();
  });
  if (kernel.fold && whole) return bind_fold_of_whole(kernel, output, inputs);
  std::vector<PointwisePass> passes;
  for (size_t k = 1; k < inputs.size(); ++k) {
    const Tensor* pair[] = {k == 1 ? inputs[0] : &output, inputs[k]};
    passes.emplace_back(kernel, output, pair);
  }
  return bound([passes = std::move(passes)](RandomStream random) {
    for (const PointwisePass& pass : passes) pass(random);
  });
}

// A fill is independent of the element type: it repeats a pattern of eight bytes.

__global__ void __launch_bounds__(threads_in_block)
    fill_kernel(uint64_t pattern, unsigned char* out, int64_t bytes) {
  const auto misplaced = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % vector_bytes);
  const int64_t to_next = misplaced ? vector_bytes - misplaced : 0, head = to_next < bytes ? to_next : bytes;
  const int64_t words = (bytes - head) / vector_bytes, tail = bytes - head - words * vector_bytes;
  const auto low = static_cast<unsigned>(pattern), high = static_cast<unsigned>(pattern >> 32);
  uint4* middle = reinterpret_cast<uint4*>(out + head);
  for (int64_t i = grid_thread(); i < words; i += grid_threads())
    middle[i] = make_uint4(low, high, low, high);
  // Fewer than sixteen bytes at either end. Elements are aligned to their size.
  const int64_t i = grid_thread();
  const auto byte = static_cast<unsigned char>(pattern >> (8 * (i % 8)));
  if (i < head) out[i] = byte;
  if (i < tail) out[bytes - tail + i] = byte;
}

}  // namespace

Bound bind_pointwise(const KernelCall& call, std::string_view functor) {
  const Tensor& output = *call.outputs[0];
  const Inputs inputs(call.inputs.data(), call.inputs.size());
  const DType dtype = inputs.back()->dtype();
  const PointwiseFunction* function = find(functor);
  if (!function || !function->of_dtype[static_cast<size_t>(dtype)].unit)
    throw UnsupportedError(std::string(functor) + " has no CUDA kernel for " + std::string(name(dtype)));
  const PointwiseKernel& kernel = function->of_dtype[static_cast<size_t>(dtype)];
  if (inputs.size() > function->inputs) return bind_fold(kernel, output, inputs);
  return bound(PointwisePass(kernel, output, inputs));
}

namespace {

/// Fills output 0 with `value`.
Bound bind_fill(const KernelCall& call, double value) {
  const Tensor& output = *call.outputs[0];
  const auto bytes = static_cast<int64_t>(output.bytes());
  if (bytes == 0) return bound([](RandomStream) {});
  uint64_t pattern = 0;
  visit_stored(output.dtype(), [&]<class T>(TypeTag<T>) {
    const T element = scalar::Cast<T>()(value);
    for (size_t at = 0; at < sizeof pattern; at += sizeof(T))
      std::memcpy(reinterpret_cast<char*>(&pattern) + at, &element, sizeof(T));
  });
  return bound([pattern, bytes, to = static_cast<unsigned char*>(output.address())](RandomStream) {
    launch(fill_kernel, grid_for(bytes / vector_bytes + 1, 4), pattern, to, bytes);
  });
}

}  // namespace

void add_pointwise_kernels(KernelRegistry& kernels) {
  kernels.add_pointwise([](const Op& op, const KernelCall& call) {
    const std::string_view functor = op.loops(CallSpecs(call).inputs()).functor;
    if (functor.empty()) op.unsupported(call, "cuda");
    return bind_pointwise(call, functor);
  });
  kernels.add("full_like",
              [](const Op& op, const KernelCall& call) { return bind_fill(call, *op.traits().fill); });
  kernels.add("count_ratio", [](const KernelCall& call) {
    return bind_fill(call, static_cast<double>(call.inputs[0]->elements()) /
                               static_cast<double>(call.inputs[1]->elements()));
  });
  kernels.add("sample_correction", [](const KernelCall& call) {
    const double n =
        static_cast<double>(call.inputs[0]->elements()) / static_cast<double>(call.inputs[1]->elements());
    return bind_fill(call, n > 1 ? n / (n - 1) : 1.0);
  });
}

}  // namespace espalier::cu
