// Triangular systems, by trsm.
#include <cblas.h>

#include "espalier/core/op_registry.h"
#include "espalier/ops/linalg/linalg_ops.h"
#include "espalier/ops/linalg/matrix_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

void run_trsm(CBLAS_UPLO triangle, CBLAS_TRANSPOSE form, CBLAS_DIAG diagonal, int n, int k, const float* a,
              float* x) {
  cblas_strsm(CblasRowMajor, CblasLeft, triangle, form, diagonal, n, k, 1, a, n, x, k);
}
void run_trsm(CBLAS_UPLO triangle, CBLAS_TRANSPOSE form, CBLAS_DIAG diagonal, int n, int k, const double* a,
              double* x) {
  cblas_dtrsm(CblasRowMajor, CblasLeft, triangle, form, diagonal, n, k, 1, a, n, x, k);
}

/// a⁻¹ · b from (a, b), where one triangle of `a` is read, or (aᵀ)⁻¹ · b.
class TriangularSolve : public MatrixOp {
 public:
  TriangularSolve(bool upper, bool transposed, bool unit)
      : MatrixOp({.gradient_reads = InputSet::only(0), .gradient_reads_output = true}),
        upper_(upper),
        transposed_(transposed),
        unit_(unit) {}
  std::string_view name() const override { return "triangular_solve"; }
  Attributes attributes() const override {
    return {{"upper", upper_}, {"transposed", transposed_}, {"unit", unit_}};
  }
  bool mixes(size_t input, size_t axis, const InputSpecs& in) const override {
    if (input == 1) return axis + 2 == in[1]->shape.rank();
    return MatrixOp::mixes(input, axis, in);
  }
  Specs infer(const InputSpecs& in) const override {
    check_matrix(*in[0], name(), true);
    check_same_dtype(*in[0], *in[1], name());
    check_matrix(*in[1], name(), false);
    const Shape &a = in[0]->shape, &b = in[1]->shape;
    if (a[-1] != b[-2])
      throw ShapeError(
          fmt::format("triangular_solve: {} does not go with a right side {}: [..., n, n] takes [..., n, k]",
                      a.str(), b.str()));
    return {{in[0]->dtype,
             batch_with(broadcast(batch_of_matrices(a), batch_of_matrices(b), name()), {b[-2], b[-1]})}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor a = call.inputs[0]->contiguous_copy();
    Tensor& out = *call.outputs[0];
    const int64_t n = a.shape()[-1], k = out.shape()[-1];
    visit_matrix(a.dtype(), [&]<class T>(TypeTag<T>) {
      const T* factors = static_cast<const T*>(a.address());
      if (!unit_) check_regular(factors, a.shape());
      if (out.elements() == 0) return;
      copy_elements(broadcast_layout_of(*call.inputs[1], out.shape()), out);
      T* x = detail::output<T>(call);
      const Shape batch = batch_of_matrices(out.shape());
      const BroadcastBatch matrix(batch_of_matrices(a.shape()), batch);
      each_matrix(name(), batch.elements(), static_cast<double>(n) * static_cast<double>(n * k),
                  [&](int64_t i) {
                    run_trsm(upper_ ? CblasUpper : CblasLower, transposed_ ? CblasTrans : CblasNoTrans,
                             unit_ ? CblasUnit : CblasNonUnit, static_cast<int>(n), static_cast<int>(k),
                             factors + matrix(i) * n * n, x + i * n * k);
                  });
    });
  }
  NodeFlops cost(const NodeWork& work) const override {
    return {.elementwise = static_cast<double>(work.outputs[0].shape.elements()) *
                           static_cast<double>(work.inputs[0]->shape[-1])};
  }
  Gradients gradient(const GradientRule& rule) const override {
    Gradients result(rule.inputs());
    const Variable a = rule.input(0), x = rule.output();
    const Variable of_b = triangular_solve_of(a, rule.output_gradient(), upper_, !transposed_, unit_);
    if (rule.wants(0)) {
      const Variable whole = transposed_ ? matmul(x, transpose(of_b)) : matmul(of_b, transpose(x));
      const Variable triangle =
          band_like(a, upper_ ? 0 : unlimited_band, upper_ ? unlimited_band : 0, unit_ ? 0 : 1);
      result[0] = negative(whole) * triangle;
    }
    if (rule.wants(1)) result[1] = of_b;
    return result;
  }

 private:
  template <class T>
  static void check_regular(const T* a, const Shape& shape) {
    const int64_t n = shape[-1], count = batch_of_matrices(shape).elements();
    for (int64_t i = 0; i < count; ++i)
      for (int64_t d = 0; d < n; ++d)
        if (a[i * n * n + d * (n + 1)] == 0)
          throw LinAlgError(fmt::format("triangular_solve: {} is singular: element {} of its diagonal is 0",
                                        name_of_matrix(batch_of_matrices(shape), i), d));
  }

  bool upper_, transposed_, unit_;
};

}  // namespace

Variable triangular_solve_of(const Variable& a, const Variable& b, bool upper, bool transposed, bool unit) {
  return apply(std::make_shared<TriangularSolve>(upper, transposed, unit), {&a, &b},
               std::source_location::current());
}

void add_triangular_ops(OpRegistry& ops) {
  ops.add("triangular_solve", 2, [](AttributeReader& a) {
    const bool upper = a.flag("upper"), transposed = a.flag("transposed");
    return std::make_shared<TriangularSolve>(upper, transposed, a.flag("unit"));
  });
}

}  // namespace espalier
