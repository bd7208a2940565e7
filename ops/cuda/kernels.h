// The CUDA kernels of ops, bound to tensors that stay where they are. Each `run` launches in the current
// stream and allocates nothing; what it needs beside its tensors was allocated when it was bound.
#pragma once
#include <memory>
#include <string_view>

#include "espalier/core/op.h"

namespace espalier::cu {

using Bound = std::unique_ptr<BoundKernel>;

// pointwise.cu
/// A functor of core/scalar.h, by its name, over inputs of any strides, broadcast to the output. One with two
/// operands folds more than two inputs from the first on.
Bound bind_pointwise(const KernelCall& call, std::string_view functor);
/// One number everywhere in output 0.
Bound bind_fill(const KernelCall& call, double value);

// random.cu
/// 1 / keep with probability `keep`, else 0: the numbers of fill_bernoulli.
Bound bind_dropout_mask(const KernelCall& call, double keep);

// reduce.cu
/// Along `axes` of input 0 (resolved, ascending), to output 0.
Bound bind_reduce(const KernelCall& call, Fold fold, const Dims& axes);
/// The position of the first largest element along an axis.
Bound bind_argmax(const KernelCall& call, size_t axis);

// softmax.cu
/// Along the last axis.
Bound bind_softmax(const KernelCall& call);
Bound bind_log_softmax(const KernelCall& call);
Bound bind_log_softmax_pick(const KernelCall& call);
Bound bind_log_softmax_pick_gradient(const KernelCall& call);

// index.cu
Bound bind_gather(const KernelCall& call, size_t axis);
/// Deterministic: every element is added to in the order of the indices.
Bound bind_scatter_add_like(const KernelCall& call, size_t axis);
Bound bind_pick(const KernelCall& call);
Bound bind_put_like(const KernelCall& call);
Bound bind_one_hot(const KernelCall& call, int64_t classes);

// matmul.cpp
Bound bind_matmul(const KernelCall& call, MatmulForm form);

}  // namespace espalier::cu
