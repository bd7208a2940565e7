// Eigenvalues and eigenvectors of symmetric matrices.
#include <algorithm>
#include <vector>

#include "espalier/core/op_registry.h"
#include "espalier/ops/linalg/factor_ops.h"
#include "espalier/ops/linalg/lapack.h"
#include "espalier/ops/linalg/linalg_ops.h"
#include "espalier/ops/linalg/matrix_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// Runs syevd on each matrix. What lies in the lower triangle by rows is the upper one by columns.
template <class T>
void run_eigh(const Tensor& a, T* values, T* vectors) {
  const int64_t n = a.shape()[-1];
  const Shape batch = batch_of_matrices(a.shape());
  const T* from = static_cast<const T*>(a.address());
  each_matrix("eigh", batch.elements(), 10 * cube(n), [&](int64_t i) {
    std::vector<T> work(from + i * n * n, from + (i + 1) * n * n);
    if (lapack::syevd(vectors != nullptr, n, work.data(), values + i * n))
      throw LinAlgError(fmt::format("eigh: {} has no decomposition: the iteration did not converge",
                                    name_of_matrix(batch, i)));
    if (!vectors) return;
    for (int64_t row = 0; row < n; ++row)
      for (int64_t column = 0; column < n; ++column)
        vectors[i * n * n + row * n + column] = work[static_cast<size_t>(column * n + row)];
  });
}

Specs specs_of_eigh(const InputSpecs& in, std::string_view op, bool vectors) {
  check_matrix(*in[0], op, true);
  const Shape& shape = in[0]->shape;
  Specs specs;
  specs.push_back({in[0]->dtype, batch_with(batch_of_matrices(shape), {shape[-1]})});
  if (vectors) specs.push_back(*in[0]);
  return specs;
}

/// Outputs: the values [..., n] and the vectors [..., n, n].
struct Eigh : MatrixOp {
  Eigh() : MatrixOp({.gradient_reads = InputSet::none(), .gradient_reads_output = true}) {}
  std::string_view name() const override { return "eigh"; }
  Specs infer(const InputSpecs& in) const override { return specs_of_eigh(in, name(), true); }
  void run_cpu(const KernelCall& call) const override {
    const Tensor a = call.inputs[0]->contiguous_copy();
    if (a.elements() == 0) return;
    visit_matrix(a.dtype(), [&]<class T>(TypeTag<T>) {
      run_eigh(a, detail::output<T>(call, 0), detail::output<T>(call, 1));
    });
  }
  NodeFlops cost(const NodeWork& work) const override {
    const Shape& shape = work.inputs[0]->shape;
    return {.elementwise = 10.0 * static_cast<double>(shape.elements()) * static_cast<double>(shape[-1])};
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable values = rule.output(0), v = rule.output(1);
    const Variable &of_values = rule.output_gradient(0), &of_v = rule.output_gradient(1);
    const Variable one = eye_like(v);
    Variable inner;
    if (of_values.defined()) inner = unsqueeze(of_values, -1) * one;
    if (of_v.defined()) {
      const Variable differences = unsqueeze(values, -2) - unsqueeze(values, -1) + one;
      const Variable part = matmul(transpose(v), of_v) / differences * (1.0 - one);
      inner = inner.defined() ? inner + part : part;
    }
    const Variable result = matmul(matmul(v, inner), transpose(v));
    return {(result + transpose(result)) * 0.5};
  }
};

/// The values alone; their gradient computes the vectors.
struct Eigenvalues : MatrixOp {
  Eigenvalues() : MatrixOp({.gradient_reads = InputSet::only(0)}) {}
  std::string_view name() const override { return "eigvalsh"; }
  Specs infer(const InputSpecs& in) const override { return specs_of_eigh(in, name(), false); }
  void run_cpu(const KernelCall& call) const override {
    const Tensor a = call.inputs[0]->contiguous_copy();
    if (a.elements() == 0) return;
    visit_matrix(a.dtype(), [&]<class T>(TypeTag<T>) { run_eigh<T>(a, detail::output<T>(call), nullptr); });
  }
  NodeFlops cost(const NodeWork& work) const override {
    const Shape& shape = work.inputs[0]->shape;
    return {.elementwise = 4.0 / 3 * static_cast<double>(shape.elements()) * static_cast<double>(shape[-1])};
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable v = output_of(eigh_factors(rule.input(0)), 1);
    return {matmul(v * unsqueeze(rule.output_gradient(), -2), transpose(v))};
  }
};

}  // namespace

Variable eigh_factors(const Variable& a) {
  return apply(shared_op<Eigh>(), {&a}, std::source_location::current());
}
Variable eigenvalues(const Variable& a) {
  return apply(shared_op<Eigenvalues>(), {&a}, std::source_location::current());
}

void add_eigh_ops(OpRegistry& ops) { ops.add<Eigh, Eigenvalues>(1); }

}  // namespace espalier
