// The CUDA kernels of what only plans contain, bound to tensors that stay where they are. They keep to what
// ops/cuda/kernels.h says.
#pragma once
#include <span>

#include "espalier/executor/fused/program.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/gemm.h"

namespace espalier::cu {

// fused_kernel.cpp
/// A program as one kernel.
Bound bind_fused(const KernelCall& call, const Program& program);

/// A program of a group, and how many of the call's inputs and outputs are its own.
struct GroupMember {
  const Program* program;
  size_t inputs, outputs;
};
/// All members in one launch, where their programs are one text.
Bound bind_fused_group(const KernelCall& call, std::span<const GroupMember> members);

// matmul_ops.cpp
/// p - rate · a · b; inputs p, rate (one element), a, b.
Bound bind_matmul_update(const KernelCall& call, MatmulForm form);

/// A program over a product. The inputs of the call are a, b, and those of the program but for `input`, which
/// is the product.
struct ProductProgram {
  MatmulForm form;
  const Program& program;
  size_t input;
  Tensor product, seen;  ///< as it is made, and as the program sees it: one memory
  GemmEpilogue whole;    ///< what the program is, if libraries have that
  const Tensor* bias;    ///< which they add then
};
Bound bind_product_program(const KernelCall& call, ProductProgram x);

}  // namespace espalier::cu
