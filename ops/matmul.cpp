// Matrix multiplication.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/ops/gemm.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

namespace {

Variable matmul_with(const Variable& a, const Variable& b, bool transpose_a, bool transpose_b,
                     const std::source_location& where);

/// A matrix as a GEMM takes it: its leading dimension, and whether it lies transposed.
struct Stored {
  bool transposed;
  int64_t leading;
};
/// Nothing if neither axis steps by 1.
std::optional<Stored> stored(const Layout& matrix) {
  const int64_t rows = matrix.shape.dims()[0], columns = matrix.shape.dims()[1];
  const int64_t down = matrix.strides[0], across = matrix.strides[1];
  if ((across == 1 || columns == 1) && (down >= columns || rows == 1))
    return Stored{false, std::max(down, columns)};
  if ((down == 1 || rows == 1) && (across >= rows || columns == 1))
    return Stored{true, std::max(across, rows)};
  return std::nullopt;
}

class Matmul : public Op {
 public:
  Matmul(bool transpose_a, bool transpose_b) : ta_(transpose_a), tb_(transpose_b) {}
  std::string_view name() const override { return "matmul"; }
  OpKind kind() const override { return OpKind::matmul; }
  Attributes attributes() const override { return {{"transpose_a", ta_}, {"transpose_b", tb_}}; }

  Specs infer(const InputSpecs& in) const override {
    check_same_dtype(*in[0], *in[1], name());
    check_dtype<Reals>(*in[0], name());
    const Shape &a = in[0]->shape, &b = in[1]->shape;
    if (a.rank() != 2 || b.rank() != 2)
      throw ShapeError(fmt::format("matmul: takes two matrices, not {} and {}", a.str(), b.str()));
    const Shape x{a[ta_], a[!ta_]}, y{b[tb_], b[!tb_]};
    if (x[1] != y[0])
      throw ShapeError(
          fmt::format("matmul: {} times {}: the inner sizes {} and {} differ", x.str(), y.str(), x[1], y[0]));
    if (std::max({x[0], x[1], y[1]}) > std::numeric_limits<int32_t>::max())
      throw UnsupportedError(
          fmt::format("matmul: {} times {} is more than the libraries can index", x.str(), y.str()));
    return {{in[0]->dtype, Shape{x[0], y[1]}}};
  }

  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    const int64_t k = call.inputs[0]->shape()[!ta_];
    if (out.elements() == 0) return;
    if (k == 0) {
      std::fill_n(static_cast<char*>(out.address()), out.bytes(), char{0});
      return;
    }
    Tensor a = *call.inputs[0], b = *call.inputs[1];
    const Gemm gemm = resolve(a, b, out);
    run_gemm(gemm, a.address(), b.address(), out.address(), gemm_library(gemm));
  }

  void prepare(const KernelCall& call) const override {
    Tensor a = *call.inputs[0], b = *call.inputs[1];
    if (call.outputs[0]->elements() && a.elements()) measure_gemm(resolve(a, b, *call.outputs[0]));
  }

  Gradients gradient(const GradientRule& rule) const override {
    const Variable &g = rule.output_gradient(), a = rule.input(0), b = rule.input(1);
    Gradients result(2);
    if (rule.wants(0))
      result[0] =
          ta_ ? matmul_with(b, g, tb_, true, rule.where()) : matmul_with(g, b, false, !tb_, rule.where());
    if (rule.wants(1))
      result[1] =
          tb_ ? matmul_with(g, a, true, ta_, rule.where()) : matmul_with(a, g, !ta_, false, rule.where());
    return result;
  }

 private:
  /// The product as a GEMM. Operands whose strides it cannot take are replaced by copies.
  Gemm resolve(Tensor& a, Tensor& b, const Tensor& out) const {
    std::optional<Stored> x = stored(a.layout()), y = stored(b.layout());
    if (!x) a = a.clone(), x = stored(a.layout());
    if (!y) b = b.clone(), y = stored(b.layout());
    return {a.dtype(),       ta_ != x->transposed, tb_ != y->transposed, out.shape()[0], out.shape()[1],
            a.shape()[!ta_], x->leading,           y->leading,           out.shape()[1]};
  }

  bool ta_, tb_;
};

/// The matrix whose transpose `v` is, if it is one; then `transposed` is flipped.
Variable behind_transpose(const Variable& v, bool& transposed) {
  const Node* node = v.node();
  if (!node || !node->op().transposes_matrix()) return v;
  // What an eager transpose shows must be what its input still has: that may have been assigned or released.
  const Tensor &shown = node->outputs[0].value, &behind = node->inputs[0].value();
  if (!node->lazy && (!behind.defined() || behind.storage().get() != shown.storage().get())) return v;
  transposed = !transposed;
  return node->inputs[0].variable();
}

Variable matmul_with(const Variable& a, const Variable& b, bool transpose_a, bool transpose_b,
                     const std::source_location& where) {
  static const Matmul ops[4] = {{false, false}, {false, true}, {true, false}, {true, true}};
  const Variable x = behind_transpose(a, transpose_a), y = behind_transpose(b, transpose_b);
  const OpPtr op(std::shared_ptr<void>(), &ops[transpose_a * 2 + transpose_b]);
  return apply(op, {&x, &y}, where);
}

}  // namespace

Variable matmul(const Operand& a, const Operand& b) {
  return matmul_with(a.variable(), b.variable(), false, false, a.where());
}

}  // namespace espalier
