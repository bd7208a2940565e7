// The CUDA kernels of ops/linalg/, and what they share.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "espalier/core/kernel_registry.h"

namespace espalier::cu {

/// By cuSOLVER: they meet the host, which looks for matrices without a decomposition.
void add_lu_kernels(KernelRegistry& kernels);
void add_factor_kernels(KernelRegistry& kernels);
/// Kernels of our own.
void add_triangle_kernels(KernelRegistry& kernels);

/// Throws LinAlgError where a matrix has a zero on its diagonal: "`function`: … is singular". Waits for the
/// stream.
void check_diagonal(const Tensor& matrices, const std::string& function);

/// Sets the elements above the diagonals of contiguous matrices to zero, or those below. Launches only.
void zero_triangle(const Tensor& matrices, bool above);

/// A function of no arguments as a kernel that meets the host.
template <class F>
std::unique_ptr<BoundKernel> bound_on_host(F function) {
  struct Call : BoundKernel {
    explicit Call(F f) : function(std::move(f)) {}
    void run(RandomStream) override { function(); }
    bool can_be_captured() const override { return false; }
    F function;
  };
  return std::make_unique<Call>(std::move(function));
}

}  // namespace espalier::cu
