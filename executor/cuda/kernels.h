// The CUDA kernels of nodes that only plans have, bound to tensors that stay where they are.
#pragma once
#include "espalier/executor/fused/program.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/gemm.h"

namespace espalier::cu {

// fused.cpp
/// A program over the inputs and outputs of the call. An output may lie where an input does that the program
/// reads at the same elements.
Bound bind_fused(const KernelCall& call, const Program& program);

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
