// Cholesky's decomposition.
#include <algorithm>

#include "espalier/core/op_registry.h"
#include "espalier/ops/linalg/factor_ops.h"
#include "espalier/ops/linalg/lapack.h"
#include "espalier/ops/linalg/linalg_ops.h"
#include "espalier/ops/linalg/matrix_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// The lower factor of a symmetric matrix, of which the lower triangle is read. Its gradient: Murray,
/// Differentiation of the Cholesky decomposition, 2016.
struct Cholesky : MatrixOp {
  Cholesky() : MatrixOp({.gradient_reads = InputSet::none(), .gradient_reads_output = true}) {}
  std::string_view name() const override { return "cholesky"; }
  Specs infer(const InputSpecs& in) const override {
    check_matrix(*in[0], name(), true);
    return {*in[0]};
  }
  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    if (out.elements() == 0) return;
    copy_elements(*call.inputs[0], out);
    const int64_t n = out.shape()[-1];
    const Shape batch = batch_of_matrices(out.shape());
    visit_matrix(out.dtype(), [&]<class T>(TypeTag<T>) {
      T* factors = detail::output<T>(call);
      each_matrix(name(), batch.elements(), cube(n) / 3, [&](int64_t i) {
        T* a = factors + i * n * n;
        // What lies in the lower triangle by rows is the upper one by columns.
        if (const int64_t minor = lapack::potrf(true, n, a))
          throw LinAlgError(fmt::format(
              "cholesky: {} is not positive definite: its leading minor of order {} is not positive",
              name_of_matrix(batch, i), minor));
        check_cholesky_diagonal(a, n + 1, n, batch, i);
        for (int64_t row = 0; row < n; ++row) std::fill(a + row * (n + 1) + 1, a + (row + 1) * n, T(0));
      });
    });
  }
  NodeFlops cost(const NodeWork& work) const override {
    const Shape& shape = work.outputs[0].shape;
    return {.elementwise = static_cast<double>(shape.elements()) * static_cast<double>(shape[-1]) / 3};
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable l = rule.output();
    const Variable p = matmul(transpose(l), rule.output_gradient()) * band_like(l, unlimited_band, 0, 0.5);
    const Variable left = triangular_solve_of(l, p + transpose(p), false, true, false);
    return {triangular_solve_of(l, transpose(left), false, true, false) * 0.5};
  }
};

}  // namespace

Variable cholesky_factor(const Variable& a) {
  return apply(shared_op<Cholesky>(), {&a}, std::source_location::current());
}

void add_cholesky_op(OpRegistry& ops) { ops.add<Cholesky>(1); }

}  // namespace espalier
