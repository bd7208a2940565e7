// The QR decomposition.
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

/// The gradient of a matrix that is at least as high as wide. An undefined gradient is 0.
Variable gradient_of_tall_qr(const Variable& q, const Variable& r, const Variable& of_q,
                             const Variable& of_r) {
  Variable m;
  if (of_r.defined()) m = matmul(of_r, transpose(r));
  if (of_q.defined()) {
    const Variable part = matmul(transpose(q), of_q);
    m = m.defined() ? m - part : negative(part);
  }
  const Variable upper = m * band_like(m, 0, unlimited_band, 0.5);
  Variable right = matmul(q, upper + transpose(upper));
  if (of_q.defined()) right = right + of_q;
  return transpose(triangular_solve_of(r, transpose(right), true, false, false));
}

/// The gradient of a matrix like `a` of any sizes, which are not known yet: a = q · [r₁ r₂] with a square r₁,
/// where r₂ = qᵀ · (the other columns) may have no columns. Masks stand in place of slices.
Variable gradient_of_any_qr(const Variable& q, const Variable& r, Variable of_q, const Variable& of_r,
                            const Variable& a) {
  const Variable square = matmul(transpose(q), q);
  Variable of_square, of_others;
  if (of_r.defined()) {
    of_square = slice_like(of_r, square, -1, 0);
    of_others = of_r * (1.0 - pad_like(ones_like(square), r, -1, 0));
    const Variable through_r = matmul(matmul(q, r), transpose(of_others));
    of_q = of_q.defined() ? of_q + through_r : through_r;
  }
  const Variable first = gradient_of_tall_qr(q, slice_like(r, square, -1, 0), of_q, of_square);
  const Variable result = pad_like(first, a, -1, 0);
  return of_others.defined() ? result + matmul(q, of_others) : result;
}

/// Outputs q [..., m, k] and r [..., k, n].
struct Qr : MatrixOp {
  Qr() : MatrixOp({.gradient_reads = InputSet::none(), .gradient_reads_output = true}) {}
  std::string_view name() const override { return "qr"; }
  Specs infer(const InputSpecs& in) const override {
    check_matrix(*in[0], name(), false);
    const Shape& shape = in[0]->shape;
    const int64_t m = shape[-2], n = shape[-1], k = std::min(m, n);
    const Shape batch = batch_of_matrices(shape);
    Specs specs;
    specs.push_back({in[0]->dtype, batch_with(batch, {m, k})});
    specs.push_back({in[0]->dtype, batch_with(batch, {k, n})});
    return specs;
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor a = call.inputs[0]->contiguous_copy();
    if (a.elements() == 0) return;
    const int64_t m = a.shape()[-2], n = a.shape()[-1], k = std::min(m, n);
    visit_matrix(a.dtype(), [&]<class T>(TypeTag<T>) {
      const T* from = static_cast<const T*>(a.address());
      T *q = detail::output<T>(call, 0), *r = detail::output<T>(call, 1);
      const double operations = 4.0 * static_cast<double>(m * n) * static_cast<double>(k);
      each_matrix(name(), a.elements() / (m * n), operations, [&](int64_t i) {
        // By columns, what lies there is the transposed matrix [n, m] = L · Q: its factors are these,
        // transposed.
        std::vector<T> work(from + i * m * n, from + (i + 1) * m * n), tau(static_cast<size_t>(k));
        (void)lapack::gelqf(n, m, work.data(), tau.data());
        T* to = r + i * k * n;
        for (int64_t row = 0; row < k; ++row)
          for (int64_t column = 0; column < n; ++column)
            to[row * n + column] = column < row ? T(0) : work[static_cast<size_t>(row * n + column)];
        (void)lapack::orglq(k, m, work.data(), n, tau.data());
        for (int64_t row = 0; row < m; ++row) std::copy_n(work.begin() + row * n, k, q + i * m * k + row * k);
      });
    });
  }
  NodeFlops cost(const NodeWork& work) const override {
    const Shape& shape = work.inputs[0]->shape;
    return {.elementwise = 4.0 * static_cast<double>(shape.elements()) *
                           static_cast<double>(std::min(shape[-1], shape[-2]))};
  }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable q = rule.output(0), r = rule.output(1);
    Variable of_q = rule.output_gradient(0);
    const Variable& of_r = rule.output_gradient(1);
    const int64_t m = q.shape()[-2], n = r.shape()[-1];
    if (sizes_may_vary(q)) return {gradient_of_any_qr(q, r, of_q, of_r, rule.input(0))};
    if (m >= n) return {gradient_of_tall_qr(q, r, of_q, of_r)};
    // a = q · [r₁ r₂] with a square r₁: q is that of the first columns, and r₂ = qᵀ · (the others).
    if (!of_r.defined()) {
      const Variable first = gradient_of_tall_qr(q, slice(r, -1, 0, m), of_q, {});
      return {concat({first, zeros_like(slice(r, -1, m, n))}, -1)};
    }
    const Variable others = slice(of_r, -1, m, n);
    const Variable through_r = matmul(matmul(q, slice(r, -1, m, n)), transpose(others));
    of_q = of_q.defined() ? of_q + through_r : through_r;
    const Variable first = gradient_of_tall_qr(q, slice(r, -1, 0, m), of_q, slice(of_r, -1, 0, m));
    return {concat({first, matmul(q, others)}, -1)};
  }
};

}  // namespace

Variable qr_factors(const Variable& a) {
  return apply(shared_op<Qr>(), {&a}, std::source_location::current());
}

void add_qr_op(OpRegistry& ops) { ops.add<Qr>(1); }

}  // namespace espalier
