// The routines of cuSOLVER by element type.
#pragma once
#include "espalier/core/cuda/cusolver.h"
#include "espalier/core/kernel_registry.h"

namespace espalier::cu {

template <class T>
struct SolverRoutines;
template <>
struct SolverRoutines<float> {
  static constexpr auto getrf_size = cusolverDnSgetrf_bufferSize;
  static constexpr auto getrf = cusolverDnSgetrf;
  static constexpr auto getrs = cusolverDnSgetrs;
  static constexpr auto potrf_size = cusolverDnSpotrf_bufferSize;
  static constexpr auto potrf = cusolverDnSpotrf;
  static constexpr auto geqrf_size = cusolverDnSgeqrf_bufferSize;
  static constexpr auto geqrf = cusolverDnSgeqrf;
  static constexpr auto orgqr_size = cusolverDnSorgqr_bufferSize;
  static constexpr auto orgqr = cusolverDnSorgqr;
  static constexpr auto gesvd_size = cusolverDnSgesvd_bufferSize;
  static constexpr auto gesvd = cusolverDnSgesvd;
  static constexpr auto syevd_size = cusolverDnSsyevd_bufferSize;
  static constexpr auto syevd = cusolverDnSsyevd;
};
template <>
struct SolverRoutines<double> {
  static constexpr auto getrf_size = cusolverDnDgetrf_bufferSize;
  static constexpr auto getrf = cusolverDnDgetrf;
  static constexpr auto getrs = cusolverDnDgetrs;
  static constexpr auto potrf_size = cusolverDnDpotrf_bufferSize;
  static constexpr auto potrf = cusolverDnDpotrf;
  static constexpr auto geqrf_size = cusolverDnDgeqrf_bufferSize;
  static constexpr auto geqrf = cusolverDnDgeqrf;
  static constexpr auto orgqr_size = cusolverDnDorgqr_bufferSize;
  static constexpr auto orgqr = cusolverDnDorgqr;
  static constexpr auto gesvd_size = cusolverDnDgesvd_bufferSize;
  static constexpr auto gesvd = cusolverDnDgesvd;
  static constexpr auto syevd_size = cusolverDnDsyevd_bufferSize;
  static constexpr auto syevd = cusolverDnDsyevd;
};

/// Calls `f(TypeTag<T>{})` with float or double, the type of the first output; throws for other types.
template <class F>
std::unique_ptr<BoundKernel> for_solver_type(const Op& op, const KernelCall& call, F&& f) {
  switch (call.outputs[0]->dtype()) {
    case DType::float32: return f(TypeTag<float>{});
    case DType::float64: return f(TypeTag<double>{});
    default: op.unsupported(call, "cuda");
  }
}

/// Leading dimensions are at least 1.
inline int leading_of(int64_t n) { return static_cast<int>(n < 1 ? 1 : n); }

/// Device memory for a call: elements of a type, at least one.
template <class T>
Tensor solver_memory(int64_t count, Device device) {
  return Tensor({count < 1 ? 1 : count}, dtype_of<T>(), device);
}
template <class T>
T* address_of(const Tensor& x, int64_t offset = 0) {
  return static_cast<T*>(x.address()) + offset;
}

}  // namespace espalier::cu
