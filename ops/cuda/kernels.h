// The CUDA kernels of ops, bound to tensors at fixed addresses. Each `run` launches in the current stream and
// allocates nothing; workspace was allocated when the kernel was bound.
#pragma once
#include <memory>
#include <string_view>

#include "espalier/core/kernel_registry.h"

namespace espalier::cu {

using Bound = std::unique_ptr<BoundKernel>;

// One function for each file: it registers the file's kernels by the names of their ops.
void add_pointwise_kernels(KernelRegistry& kernels);
void add_random_kernels(KernelRegistry& kernels);
void add_sampling_kernels(KernelRegistry& kernels);
void add_reduce_kernels(KernelRegistry& kernels);
void add_attention_kernels(KernelRegistry& kernels);
void add_argmax_kernels(KernelRegistry& kernels);
void add_softmax_kernels(KernelRegistry& kernels);
void add_along_axis_kernels(KernelRegistry& kernels);
void add_sparsemax_kernels(KernelRegistry& kernels);
void add_index_kernels(KernelRegistry& kernels);
void add_scatter_kernels(KernelRegistry& kernels);
void add_row_kernels(KernelRegistry& kernels);
void add_window_kernels(KernelRegistry& kernels);
void add_convolution_kernels(KernelRegistry& kernels);
void add_pooling_kernels(KernelRegistry& kernels);
void add_checked_indices_kernel(KernelRegistry& kernels);
void add_region_kernels(KernelRegistry& kernels);
void add_product_kernels(KernelRegistry& kernels);
void add_ctc_kernels(KernelRegistry& kernels);
void add_scan_kernels(KernelRegistry& kernels);
void add_search_kernels(KernelRegistry& kernels);
void add_sort_kernels(KernelRegistry& kernels);
void add_recurrence_kernels(KernelRegistry& kernels);
void add_matmul_kernels(KernelRegistry& kernels);

/// Binds a functor of core/scalar.h, by name, to inputs of any strides, broadcast to the output. A binary
/// functor folds more than two inputs from left to right.
Bound bind_pointwise(const KernelCall& call, std::string_view functor);

/// Binds a convolution, or one of its gradients, to a kernel of Espalier's own: one thread for each element.
Bound bind_direct_convolution(const Op& op, const KernelCall& call);
/// Convolutions by cuDNN, instead of add_convolution_kernels; in builds with cuDNN.
void add_cudnn_kernels(KernelRegistry& kernels);

}  // namespace espalier::cu
