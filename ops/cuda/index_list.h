// Reading and checking indices, for kernels.
#pragma once
#include "espalier/core/cuda/value_errors.h"
#include "espalier/ops/cuda/contiguous_input.h"

namespace espalier::cu {

/// A list of int32 or int64, and the report for indices that are out of range.
struct IndexList {
  const void* address;
  bool wide;
  ValueReport report;

#if defined(__CUDACC__) || defined(ESPALIER_EMULATED_CUDA)
  /// Index i into an axis of `size`. Reports one that is out of range, and returns 0 for it.
  __device__ __forceinline__ int64_t at(int64_t i, int64_t size, bool from_end) const {
    const int64_t given =
        wide ? static_cast<const int64_t*>(address)[i] : int64_t{static_cast<const int32_t*>(address)[i]};
    return report.resolve(given, size, from_end);
  }
#endif
};

inline IndexList index_list(const KernelCall& call, const Tensor& indices, const ContiguousInput& in_order,
                            std::string_view op) {
  return {in_order.address(), indices.dtype() == DType::int64, value_report(call, op)};
}

/// Only checks indices and reports those out of range, for calls with no elements to move. Defined in
/// index.cu.
std::unique_ptr<BoundKernel> bind_look(const KernelCall& call, const Tensor& list, int64_t size,
                                       std::string_view op, bool from_end);

}  // namespace espalier::cu
