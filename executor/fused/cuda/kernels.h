// CUDA kernels of ops that only plans contain, bound to tensors with fixed addresses. The rules of
// ops/cuda/kernels.h apply.
#pragma once
#include "espalier/executor/fused/program.h"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

void add_fused_kernels(KernelRegistry& kernels);
void add_fused_matmul_kernels(KernelRegistry& kernels);
void add_convolution_epilogue_kernels(KernelRegistry& kernels);
/// Of convolutions by cuDNN, instead of those; in builds with cuDNN.
void add_cudnn_epilogue_kernels(KernelRegistry& kernels);

/// Binds an anchor and the program behind it as two kernels.
Bound bind_epilogue(const Op& op, const KernelCall& call, const BindContext& context);

/// A program as one kernel.
Bound bind_fused(const KernelCall& call, const Program& program);

}  // namespace espalier::cu
