// The singular value decomposition.
#include <algorithm>
#include <vector>

#include "espalier/core/op_registry.h"
#include "espalier/ops/linalg/factor_ops.h"
#include "espalier/ops/linalg/lapack.h"
#include "espalier/ops/linalg/linalg_ops.h"
#include "espalier/ops/linalg/matrix_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// Runs gesdd on each matrix, which lies transposed in LAPACK's eyes: so u and vt change places.
template <class T>
void run_svd(const Tensor& a, T* u, T* s, T* vt) {
  const int64_t m = a.shape()[-2], n = a.shape()[-1], k = std::min(m, n);
  const Shape batch = batch_of_matrices(a.shape());
  const T* from = static_cast<const T*>(a.address());
  const double operations = 20.0 * static_cast<double>(m * n) * static_cast<double>(k);
  each_matrix("svd", batch.elements(), operations, [&](int64_t i) {
    std::vector<T> work(from + i * m * n, from + (i + 1) * m * n);
    if (lapack::gesdd(n, m, work.data(), s + i * k, vt ? vt + i * k * n : nullptr,
                      u ? u + i * m * k : nullptr))
      throw LinAlgError(fmt::format("svd: {} has no decomposition: the iteration did not converge",
                                    name_of_matrix(batch, i)));
  });
}

NodeFlops svd_cost(const NodeWork& work, double factor) {
  const Shape& shape = work.inputs[0]->shape;
  return {.elementwise = factor * static_cast<double>(shape.elements()) *
                         static_cast<double>(std::min(shape[-1], shape[-2]))};
}

/// m − mᵀ, divided by the differences of the squared singular values.
Variable rotation(const Variable& m, const Variable& differences) { return (m - transpose(m)) / differences; }

/// Divides `rest`, what of a gradient is outside the space of the vectors, by the singular values `s`. `wide`
/// is at least as large as `square`, whose vectors span everything: then nothing is outside but roundings,
/// and the result is 0, whatever `s` is.
Variable outside_part(const Variable& rest, const Variable& s, const Variable& wide, const Variable& square) {
  if (!sizes_may_vary(wide)) return rest / s;
  const Variable outside = greater(count_ratio(wide, square), 1.0);
  return where(outside, rest / where(outside, s, ones_like(s)), zeros_like(rest));
}

/// Outputs u [..., m, k], s [..., k] and vt [..., k, n].
struct Svd : MatrixOp {
  Svd() : MatrixOp({.gradient_reads = InputSet::none(), .gradient_reads_output = true}) {}
  std::string_view name() const override { return "svd"; }
  Specs infer(const InputSpecs& in) const override {
    check_matrix(*in[0], name(), false);
    const Shape& shape = in[0]->shape;
    const int64_t m = shape[-2], n = shape[-1], k = std::min(m, n);
    const Shape batch = batch_of_matrices(shape);
    Specs specs;
    specs.push_back({in[0]->dtype, batch_with(batch, {m, k})});
    specs.push_back({in[0]->dtype, batch_with(batch, {k})});
    specs.push_back({in[0]->dtype, batch_with(batch, {k, n})});
    return specs;
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor a = call.inputs[0]->contiguous_copy();
    if (a.elements() == 0) return;
    visit_matrix(a.dtype(), [&]<class T>(TypeTag<T>) {
      run_svd(a, detail::output<T>(call, 0), detail::output<T>(call, 1), detail::output<T>(call, 2));
    });
  }
  NodeFlops cost(const NodeWork& work) const override { return svd_cost(work, 20); }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable u = rule.output(0), s = rule.output(1), vt = rule.output(2);
    const Variable &of_u = rule.output_gradient(0), &of_s = rule.output_gradient(1),
                   &of_vt = rule.output_gradient(2);
    const Variable rows = unsqueeze(s, -1), columns = unsqueeze(s, -2);
    const Variable gram = matmul(vt, transpose(vt)), one = eye_like(gram);
    const bool vary = sizes_may_vary(u);
    const Variable differences = square(columns) - square(rows) + one;
    Variable inner, outer;
    const auto add_to = [](Variable& sum, const Variable& part) { sum = sum.defined() ? sum + part : part; };
    if (of_s.defined()) add_to(inner, unsqueeze(of_s, -1) * one);
    if (of_u.defined()) {
      const Variable along = matmul(transpose(u), of_u);
      add_to(inner, rotation(along, differences) * columns);
      if (vary || u.shape()[-2] > s.shape()[-1])
        add_to(outer, matmul(outside_part(of_u - matmul(u, along), columns, u, gram), vt));
    }
    if (of_vt.defined()) {
      const Variable along = matmul(vt, transpose(of_vt));
      add_to(inner, rows * rotation(along, differences));
      if (vary || vt.shape()[-1] > s.shape()[-1])
        add_to(outer, matmul(u, outside_part(of_vt - matmul(transpose(along), vt), rows, vt, gram)));
    }
    const Variable result = matmul(matmul(u, inner), vt);
    return {outer.defined() ? result + outer : result};
  }
};

/// s alone; its gradient computes the vectors.
struct SingularValues : MatrixOp {
  SingularValues() : MatrixOp({.gradient_reads = InputSet::only(0)}) {}
  std::string_view name() const override { return "svdvals"; }
  Specs infer(const InputSpecs& in) const override {
    check_matrix(*in[0], name(), false);
    const Shape& shape = in[0]->shape;
    return {{in[0]->dtype, batch_with(batch_of_matrices(shape), {std::min(shape[-1], shape[-2])})}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor a = call.inputs[0]->contiguous_copy();
    if (a.elements() == 0) return;
    visit_matrix(a.dtype(),
                 [&]<class T>(TypeTag<T>) { run_svd<T>(a, nullptr, detail::output<T>(call), nullptr); });
  }
  NodeFlops cost(const NodeWork& work) const override { return svd_cost(work, 4); }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable u = svd_factors(rule.input(0));
    return {matmul(u * unsqueeze(rule.output_gradient(), -2), output_of(u, 2))};
  }
};

}  // namespace

Variable svd_factors(const Variable& a) {
  return apply(shared_op<Svd>(), {&a}, std::source_location::current());
}
Variable singular_values(const Variable& a) {
  return apply(shared_op<SingularValues>(), {&a}, std::source_location::current());
}

void add_svd_ops(OpRegistry& ops) { ops.add<Svd, SingularValues>(1); }

}  // namespace espalier
