// The CUDA kernels of ops, bound to tensors that stay where they are. Each `run` launches in the current
// stream and allocates nothing; what it needs beside its tensors was allocated when it was bound.
#pragma once
#include <memory>
#include <string_view>

#include "espalier/core/kernel_registry.h"

namespace espalier::cu {

using Bound = std::unique_ptr<BoundKernel>;

// One function for each file: its kernels, by the ops they are of.
void add_pointwise_kernels(KernelRegistry& kernels);
void add_random_kernels(KernelRegistry& kernels);
void add_reduce_kernels(KernelRegistry& kernels);
void add_argmax_kernels(KernelRegistry& kernels);
void add_softmax_kernels(KernelRegistry& kernels);
void add_index_kernels(KernelRegistry& kernels);
void add_scatter_kernels(KernelRegistry& kernels);
void add_matmul_kernels(KernelRegistry& kernels);

/// A functor of core/scalar.h, by its name, over inputs of any strides, broadcast to the output. One with two
/// operands folds more than two inputs from the first on.
Bound bind_pointwise(const KernelCall& call, std::string_view functor);

}  // namespace espalier::cu
