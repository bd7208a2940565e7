#include "espalier/ops/linalg/pinv.h"

#include "espalier/core/op_registry.h"
#include "espalier/ops/linalg/matrix_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

/// A view of the first input, with the gradient of a pseudoinverse of the second. Golub and Pereyra, The
/// differentiation of pseudo-inverses and nonlinear least squares problems whose variables separate, 1973.
struct PinvView : MatrixOp {
  PinvView()
      : MatrixOp({.kind = OpKind::view,
                  .only_copies = true,
                  .reads = InputSet::only(0),
                  .gradient_reads = InputSet::only(1),
                  .gradient_reads_output = true}) {}
  std::string_view name() const override { return "pinv"; }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  std::optional<Layout> view(const Layout& in, const Spec&) const override { return in; }
  std::optional<size_t> identity(const KnownInputs&, const Spec&) const override { return 0; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[0], *call.outputs[0]); }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable p = rule.output(), a = rule.input(1), g = transpose(rule.output_gradient()),
                   pt = transpose(p);
    // Of the change of p = a⁺: −p·da·p + p·pᵀ·daᵀ·(1 − a·p) + (1 − p·a)·daᵀ·pᵀ·p.
    const Variable gp = matmul(g, p), middle = matmul(pt, matmul(transpose(g), pt));
    const Variable first = matmul(gp, pt);             // g·p·pᵀ
    const Variable second = matmul(pt, matmul(p, g));  // pᵀ·p·g
    const Variable result =
        first - matmul(a, matmul(p, first)) + second - matmul(matmul(second, p), a) - middle;
    return {Variable(), result};
  }
};

}  // namespace

Variable pinv_with_gradient(const Variable& value, const Variable& a) {
  return apply(shared_op<PinvView>(), {&value, &a}, std::source_location::current());
}

void add_pinv_op(OpRegistry& ops) { ops.add<PinvView>(2); }

}  // namespace espalier
