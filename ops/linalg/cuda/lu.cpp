// LU factorization and its use, by cuSOLVER.
#include "espalier/core/op.h"
#include "espalier/ops/linalg/cuda/kernels.h"
#include "espalier/ops/linalg/cuda/matrix_steps.h"
#include "espalier/ops/linalg/cuda/solver_routines.h"
#include "espalier/ops/linalg/matrix_op.h"

namespace espalier::cu {

namespace {

std::unique_ptr<BoundKernel> bind_lu_factor(const Op& op, const KernelCall& call) {
  const Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  return for_solver_type(op, call, [&]<class T>(TypeTag<T>) -> std::unique_ptr<BoundKernel> {
    using Solver = SolverRoutines<T>;
    const auto n = static_cast<int>(out.shape()[-1]);
    int size = 0;
    check(Solver::getrf_size(SolverCall().handle(), n, n, address_of<T>(out), n, &size), "getrf_bufferSize");
    return bound_on_host([call, n, work = solver_memory<T>(size, out.device()),
                          info = solver_memory<int32_t>(1, out.device())] {
      Tensor& lu = *call.outputs[0];
      copy_elements(*call.inputs[0], lu);
      const SolverCall solver;
      const int64_t one = int64_t{n} * n;
      for (int64_t i = 0; i < lu.elements() / one; ++i)
        check(Solver::getrf(solver.handle(), n, n, address_of<T>(lu, i * one), n, address_of<T>(work),
                            address_of<int32_t>(*call.outputs[1], i * n), address_of<int32_t>(info)),
              "getrf");
    });
  });
}

std::unique_ptr<BoundKernel> bind_lu_solve(const Op& op, const KernelCall& call) {
  const bool transposed = attribute<bool>(op, "transposed");
  return for_solver_type(op, call, [&]<class T>(TypeTag<T>) -> std::unique_ptr<BoundKernel> {
    using Solver = SolverRoutines<T>;
    const Tensor& out = *call.outputs[0];
    Tensor columns, info = solver_memory<int32_t>(1, out.device());
    if (out.elements()) columns = Tensor(transposed_layout(out).shape(), out.dtype(), out.device());
    return bound_on_host([call, transposed, columns, info,
                          function = attribute<std::string>(op, "function")]() mutable {
      const Tensor lu = call.inputs[1]->contiguous_copy(), pivots = call.inputs[2]->contiguous_copy();
      check_diagonal(lu, function);
      Tensor& to = *call.outputs[0];
      if (to.elements() == 0) return;
      copy_elements(transposed_layout(broadcast_layout_of(*call.inputs[3], to.shape())), columns);
      const int64_t n = to.shape()[-2], k = to.shape()[-1];
      const MatrixSteps steps(lu.shape(), to.shape());
      {
        const SolverCall solver;
        for (int64_t i = 0; i < to.elements() / (n * k); ++i) {
          const int64_t of = steps.of(i);
          // The factors are those of the transposed matrices, which is how rows look to columns.
          check(Solver::getrs(solver.handle(), transposed ? CUBLAS_OP_N : CUBLAS_OP_T, static_cast<int>(n),
                              static_cast<int>(k), address_of<T>(lu, of * n * n), leading_of(n),
                              address_of<int32_t>(pivots, of * n), address_of<T>(columns, i * n * k),
                              leading_of(n), address_of<int32_t>(info)),
                "getrs");
        }
      }
      copy_elements(transposed_layout(columns), to);
    });
  });
}

}  // namespace

void check_diagonal(const Tensor& matrices, const std::string& function) {
  if (matrices.elements() == 0) return;
  Layout layout = matrices.layout();
  const size_t rank = layout.shape.rank();
  Dims dims(layout.shape.begin(), layout.shape.end() - 1),
      strides(layout.strides.begin(), layout.strides.end() - 1);
  strides[rank - 2] += layout.strides[rank - 1];
  layout.shape = Shape(std::move(dims));
  layout.strides = std::move(strides);
  const Tensor diagonal = Tensor(matrices.storage(), std::move(layout), matrices.dtype())
                              .to(cpu())
                              .to(DType::float64)
                              .contiguous_copy();
  const int64_t n = matrices.shape()[-1];
  const auto elements = diagonal.span<double>();
  for (int64_t i = 0; i < diagonal.elements(); ++i)
    if (elements[static_cast<size_t>(i)] == 0)
      throw LinAlgError(fmt::format("{}: {} is singular: element {} of its diagonal is 0", function,
                                    name_of_matrix(batch_of_matrices(matrices.shape()), i / n), i % n));
}

void add_lu_kernels(KernelRegistry& kernels) {
  kernels.add("lu_factor", bind_lu_factor);
  kernels.add("lu_solve", bind_lu_solve);
}

}  // namespace espalier::cu
