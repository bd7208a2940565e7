// Cholesky's, QR, singular value and eigenvalue decompositions, by cuSOLVER.
#include <algorithm>

#include "espalier/core/op.h"
#include "espalier/ops/linalg/cuda/kernels.h"
#include "espalier/ops/linalg/cuda/matrix_steps.h"
#include "espalier/ops/linalg/cuda/solver_routines.h"
#include "espalier/ops/linalg/matrix_op.h"

namespace espalier::cu {

namespace {

using BoundFactors = std::unique_ptr<BoundKernel>;

/// Throws LinAlgError for the first matrix whose `info` is positive; `reason` has a place for it. Waits for
/// the stream.
void check_infos(const Tensor& infos, const Shape& matrices, std::string_view op, std::string_view reason) {
  const Tensor here = infos.to(cpu());
  const auto list = here.span<int32_t>();
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i] > 0)
      throw LinAlgError(fmt::format("{}: {} {}", op,
                                    name_of_matrix(batch_of_matrices(matrices), static_cast<int64_t>(i)),
                                    fmt::format(fmt::runtime(reason), list[i])));
}
constexpr std::string_view not_converged = "has no decomposition: the iteration did not converge";

BoundFactors bind_cholesky(const Op& op, const KernelCall& call) {
  const Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  return for_solver_type(op, call, [&]<class T>(TypeTag<T>) -> BoundFactors {
    using Solver = SolverRoutines<T>;
    const auto n = static_cast<int>(out.shape()[-1]);
    const int64_t one = int64_t{n} * n, count = out.elements() / one;
    int size = 0;
    check(Solver::potrf_size(SolverCall().handle(), CUBLAS_FILL_MODE_UPPER, n, address_of<T>(out), n, &size),
          "potrf_bufferSize");
    return bound_on_host([call, n, one, count, size, work = solver_memory<T>(size, out.device()),
                          infos = solver_memory<int32_t>(count, out.device())] {
      Tensor& l = *call.outputs[0];
      copy_elements(*call.inputs[0], l);
      {
        const SolverCall solver;  // the lower triangle by rows is the upper one by columns
        for (int64_t i = 0; i < count; ++i)
          check(Solver::potrf(solver.handle(), CUBLAS_FILL_MODE_UPPER, n, address_of<T>(l, i * one), n,
                              address_of<T>(work), size, address_of<int32_t>(infos, i)),
                "potrf");
      }
      check_infos(infos, l.shape(), "cholesky",
                  "is not positive definite: its leading minor of order {} is not positive");
      const Tensor diagonals = diagonals_of(l).to(cpu()).contiguous_copy();
      for (int64_t i = 0; i < count; ++i)
        check_cholesky_diagonal(address_of<T>(diagonals, i * n), 1, n, batch_of_matrices(l.shape()), i);
      zero_triangle(l, true);
    });
  });
}

BoundFactors bind_qr(const Op& op, const KernelCall& call) {
  const Tensor& a = *call.inputs[0];
  if (a.elements() == 0) return bound([](RandomStream) {});
  return for_solver_type(op, call, [&]<class T>(TypeTag<T>) -> BoundFactors {
    using Solver = SolverRoutines<T>;
    const auto m = static_cast<int>(a.shape()[-2]), n = static_cast<int>(a.shape()[-1]), k = std::min(m, n);
    const int64_t one = int64_t{m} * n, count = a.elements() / one;
    Tensor columns(batch_with(batch_of_matrices(a.shape()), {n, m}), a.dtype(), a.device()),
        tau = solver_memory<T>(k, a.device());
    int factor = 0, form = 0;
    {
      const SolverCall solver;
      check(Solver::geqrf_size(solver.handle(), m, n, address_of<T>(columns), m, &factor),
            "geqrf_bufferSize");
      check(
          Solver::orgqr_size(solver.handle(), m, k, k, address_of<T>(columns), m, address_of<T>(tau), &form),
          "orgqr_bufferSize");
    }
    const int size = std::max(factor, form);
    return bound_on_host([call, m, n, k, one, count, size, columns, work = solver_memory<T>(size, a.device()),
                          taus = solver_memory<T>(count * k, a.device()),
                          info = solver_memory<int32_t>(1, a.device())]() mutable {
      copy_elements(transposed_layout(*call.inputs[0]), columns);
      const auto each = [&](auto&& f) {
        const SolverCall solver;
        for (int64_t i = 0; i < count; ++i)
          f(solver.handle(), address_of<T>(columns, i * one), address_of<T>(taus, i * k));
      };
      each([&](cusolverDnHandle_t handle, T* matrix, T* tau) {
        check(
            Solver::geqrf(handle, m, n, matrix, m, tau, address_of<T>(work), size, address_of<int32_t>(info)),
            "geqrf");
      });
      copy_elements(transposed_layout(columns).slice(-2, 0, k), *call.outputs[1]);
      zero_triangle(*call.outputs[1], false);
      each([&](cusolverDnHandle_t handle, T* matrix, T* tau) {
        check(Solver::orgqr(handle, m, k, k, matrix, m, tau, address_of<T>(work), size,
                            address_of<int32_t>(info)),
              "orgqr");
      });
      copy_elements(transposed_layout(columns).slice(-1, 0, k), *call.outputs[0]);
    });
  });
}

/// gesvd takes matrices that are at least as high as wide. By columns, a wide one is such; of a high one the
/// transpose is decomposed, and u and vt change places.
BoundFactors bind_svd(const Op& op, const KernelCall& call, bool vectors) {
  const Tensor& a = *call.inputs[0];
  if (a.elements() == 0) return bound([](RandomStream) {});
  return for_solver_type(op, call, [&]<class T>(TypeTag<T>) -> BoundFactors {
    using Solver = SolverRoutines<T>;
    const bool high = a.shape()[-2] > a.shape()[-1];
    const auto wide = static_cast<int>(std::max(a.shape()[-1], a.shape()[-2])),
               narrow = static_cast<int>(std::min(a.shape()[-1], a.shape()[-2]));
    const int64_t one = int64_t{wide} * narrow, count = a.elements() / one;
    int size = 0;
    check(Solver::gesvd_size(SolverCall().handle(), wide, narrow, &size), "gesvd_bufferSize");
    Tensor rows(batch_with(batch_of_matrices(a.shape()), {narrow, wide}), a.dtype(), a.device());
    Tensor left, right;
    if (vectors) {
      left = Tensor(batch_with(batch_of_matrices(a.shape()), {narrow, wide}), a.dtype(), a.device());
      right = Tensor(batch_with(batch_of_matrices(a.shape()), {narrow, narrow}), a.dtype(), a.device());
    }
    return bound_on_host([call, vectors, high, wide, narrow, one, count, size, rows, left, right,
                          work = solver_memory<T>(size, a.device()),
                          infos = solver_memory<int32_t>(count, a.device())]() mutable {
      copy_elements(high ? transposed_layout(*call.inputs[0]) : *call.inputs[0], rows);
      const Tensor& s = *call.outputs[vectors ? 1 : 0];
      {
        const SolverCall solver;
        const auto job = static_cast<signed char>(vectors ? 'S' : 'N');
        const int64_t square = int64_t{narrow} * narrow;
        for (int64_t i = 0; i < count; ++i)
          check(Solver::gesvd(solver.handle(), job, job, wide, narrow, address_of<T>(rows, i * one), wide,
                              address_of<T>(s, i * narrow), vectors ? address_of<T>(left, i * one) : nullptr,
                              wide, vectors ? address_of<T>(right, i * square) : nullptr, narrow,
                              address_of<T>(work), size, nullptr, address_of<int32_t>(infos, i)),
                "gesvd");
      }
      check_infos(infos, call.inputs[0]->shape(), "svd", not_converged);
      if (!vectors) return;
      copy_elements(high ? transposed_layout(left) : right, *call.outputs[0]);
      copy_elements(high ? transposed_layout(right) : left, *call.outputs[2]);
    });
  });
}

BoundFactors bind_eigh(const Op& op, const KernelCall& call, bool vectors) {
  const Tensor& a = *call.inputs[0];
  if (a.elements() == 0) return bound([](RandomStream) {});
  return for_solver_type(op, call, [&]<class T>(TypeTag<T>) -> BoundFactors {
    using Solver = SolverRoutines<T>;
    const auto n = static_cast<int>(a.shape()[-1]);
    const int64_t one = int64_t{n} * n, count = a.elements() / one;
    const auto mode = vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
    Tensor rows(a.shape(), a.dtype(), a.device());
    int size = 0;
    check(Solver::syevd_size(SolverCall().handle(), mode, CUBLAS_FILL_MODE_UPPER, n, address_of<T>(rows), n,
                             address_of<T>(*call.outputs[0]), &size),
          "syevd_bufferSize");
    return bound_on_host([call, vectors, mode, n, one, count, size, rows,
                          work = solver_memory<T>(size, a.device()),
                          infos = solver_memory<int32_t>(count, a.device())]() mutable {
      copy_elements(*call.inputs[0], rows);
      {
        const SolverCall solver;  // the lower triangle by rows is the upper one by columns
        for (int64_t i = 0; i < count; ++i)
          check(Solver::syevd(solver.handle(), mode, CUBLAS_FILL_MODE_UPPER, n, address_of<T>(rows, i * one),
                              n, address_of<T>(*call.outputs[0], i * n), address_of<T>(work), size,
                              address_of<int32_t>(infos, i)),
                "syevd");
      }
      check_infos(infos, rows.shape(), "eigh", not_converged);
      if (vectors) copy_elements(transposed_layout(rows), *call.outputs[1]);
    });
  });
}

}  // namespace

void add_factor_kernels(KernelRegistry& kernels) {
  kernels.add("cholesky", bind_cholesky);
  kernels.add("qr", bind_qr);
  kernels.add("svd", [](const Op& op, const KernelCall& call) { return bind_svd(op, call, true); });
  kernels.add("svdvals", [](const Op& op, const KernelCall& call) { return bind_svd(op, call, false); });
  kernels.add("eigh", [](const Op& op, const KernelCall& call) { return bind_eigh(op, call, true); });
  kernels.add("eigvalsh", [](const Op& op, const KernelCall& call) { return bind_eigh(op, call, false); });
}

}  // namespace espalier::cu
