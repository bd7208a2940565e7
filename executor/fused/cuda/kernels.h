// CUDA kernels of ops that only plans contain, bound to tensors with fixed addresses. The rules of
// ops/cuda/kernels.h apply.
#pragma once
#include "espalier/executor/fused/program.h"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

void add_fused_kernels(KernelRegistry& kernels);
void add_fused_matmul_kernels(KernelRegistry& kernels);

/// A program as one kernel.
Bound bind_fused(const KernelCall& call, const Program& program);

}  // namespace espalier::cu
