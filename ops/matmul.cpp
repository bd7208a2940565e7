// Matrix multiplication.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/ops/gemm.h"
#include "espalier/ops/gemm_choice.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/rules.h"

namespace espalier {

namespace {

Variable matmul_with(const Variable& a, const Variable& b, bool transpose_a, bool transpose_b,
                     const std::source_location& where);

constexpr int64_t most = std::numeric_limits<int32_t>::max();  // that the libraries can index

/// A matrix in a buffer: its sizes, and how far apart its rows and its columns lie.
struct Matrix {
  int64_t rows, columns, down, across;
  /// The last two axes.
  Matrix(const Layout& layout, bool transposed) {
    const Dims &sizes = layout.shape.dims(), &strides = layout.strides;
    const size_t row = sizes.size() - (transposed ? 1 : 2), column = sizes.size() - (transposed ? 2 : 1);
    rows = sizes[row], columns = sizes[column], down = strides[row], across = strides[column];
  }
};

/// A matrix as a GEMM takes it: its leading dimension, and whether it lies transposed.
struct Stored {
  bool transposed;
  int64_t leading;
};
/// Nothing if neither axis steps by 1.
std::optional<Stored> stored(const Matrix& x) {
  const int64_t down = x.rows == 1 ? x.columns : x.down, across = x.columns == 1 ? x.rows : x.across;
  if ((x.across == 1 || x.columns == 1) && down >= x.columns && down <= most) return Stored{false, down};
  if ((x.down == 1 || x.rows == 1) && across >= x.rows && across <= most) return Stored{true, across};
  return std::nullopt;
}

/// The axes before the last two.
Shape batch_of(const Shape& shape) { return Shape(Dims(shape.begin(), shape.end() - 2)); }

/// How far apart the matrices of `x` lie along the axes of `batch`, to which they are broadcast.
Dims steps_along(const Shape& batch, const Layout& x) {
  Dims steps(batch.rank(), 0);
  const size_t missing = batch.rank() + 2 - x.shape.rank();
  for (size_t i = missing; i < batch.rank(); ++i)
    if (x.shape.dims()[i - missing] != 1) steps[i] = x.strides[i - missing];
  return steps;
}

/// Makes one product of a batch if one matrix is on the right of all, and the rows on the left follow each
/// other evenly.
bool fold_rows_of(Matrix left, GemmBatch& x) {
  for (size_t i = x.batch.rank(); i-- > 0;) {
    const int64_t size = x.batch.dims()[i];
    if (size == 1) continue;
    if (x.b_steps[i] != 0) return false;
    if (left.rows == 1)
      left.down = x.a_steps[i];
    else if (x.a_steps[i] != left.rows * left.down)
      return false;
    left.rows *= size;
  }
  const std::optional<Stored> lies = stored(left);
  if (!lies || left.rows > most) return false;
  x.gemm.m = left.rows, x.gemm.transpose_a = lies->transposed, x.gemm.lda = lies->leading;
  x.batch = Shape();
  return true;
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
    if (a.rank() < 2 || b.rank() < 2)
      throw ShapeError(
          fmt::format("matmul: takes matrices or batches of them, not {} and {}", a.str(), b.str()));
    const int64_t m = a.end()[ta_ - 2], k = a.end()[-1 - ta_], n = b.end()[-1 - tb_];
    if (k != b.end()[tb_ - 2])
      throw ShapeError(fmt::format("matmul: {} times {}: the inner sizes {} and {} differ",
                                   seen(a, ta_).str(), seen(b, tb_).str(), k, b.end()[tb_ - 2]));
    if (std::max({m, k, n}) > most)
      throw UnsupportedError(fmt::format("matmul: {} times {} is more than the libraries can index",
                                         seen(a, ta_).str(), seen(b, tb_).str()));
    if (a.rank() == 2 && b.rank() == 2) return {{in[0]->dtype, Shape{m, n}}};
    Shape result = batch(a, b);
    result.dims().push_back(m);
    result.dims().push_back(n);
    return {{in[0]->dtype, std::move(result)}};
  }

  void run_cpu(const KernelCall& call) const override {
    Tensor& out = *call.outputs[0];
    if (out.elements() == 0) return;
    if (call.inputs[0]->shape().end()[-1 - ta_] == 0) {
      std::fill_n(static_cast<char*>(out.address()), out.bytes(), char{0});
      return;
    }
    Tensor a = *call.inputs[0], b = *call.inputs[1];
    const Gemm gemm = one_product(a, b, out);
    if (out.rank() > 2) return run_batch(batch_of_products(gemm, a, b, out), a, b, out);
    run_gemm(gemm, a.address(), b.address(), out.address(), gemm_choices().find_or_guess(gemm));
  }

  void prepare(const KernelCall& call) const override {
    Tensor a = *call.inputs[0], b = *call.inputs[1];
    const Tensor& out = *call.outputs[0];
    if (out.elements() == 0 || a.elements() == 0) return;
    const Gemm gemm = one_product(a, b, out);
    gemm_choices().measure(out.rank() > 2 ? batch_of_products(gemm, a, b, out).gemm : gemm);
  }

  Gradients gradient(const GradientRule& rule) const override {
    const Variable &g = rule.output_gradient(), a = rule.input(0), b = rule.input(1);
    Gradients result(2);
    if (rule.wants(0))
      result[0] =
          ta_ ? matmul_with(b, g, tb_, true, rule.where()) : matmul_with(g, b, false, !tb_, rule.where());
    if (!rule.wants(1)) return result;
    // One matrix for a whole batch: one product has the sum over the batch in it.
    const bool fold = !ta_ && a.rank() > 2 && b.rank() == 2;
    const Variable x = fold ? fold_rows(a) : a, y = fold ? fold_rows(g) : g;
    result[1] =
        tb_ ? matmul_with(y, x, true, ta_, rule.where()) : matmul_with(x, y, !ta_, false, rule.where());
    return result;
  }

 private:
  /// A shape as the product sees it.
  static Shape seen(Shape shape, bool transposed) {
    Dims& dims = shape.dims();
    if (transposed) std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
    return shape;
  }
  Shape batch(const Shape& a, const Shape& b) const {
    try {
      return broadcast(batch_of(a), batch_of(b), name());
    } catch (const ShapeError&) {
      throw ShapeError(fmt::format("matmul: {} times {}: the batches {} and {} cannot be broadcast",
                                   seen(a, ta_).str(), seen(b, tb_).str(), batch_of(a).str(),
                                   batch_of(b).str()));
    }
  }

  /// The product of two matrices, the first of a batch. Operands whose strides a GEMM cannot take are
  /// replaced by copies.
  Gemm one_product(Tensor& a, Tensor& b, const Tensor& out) const {
    std::optional<Stored> x = stored({a.layout(), ta_}), y = stored({b.layout(), tb_});
    if (!x) a = a.clone(), x = stored({a.layout(), ta_});
    if (!y) b = b.clone(), y = stored({b.layout(), tb_});
    const int64_t m = out.shape().end()[-2], n = out.shape().end()[-1], k = a.shape().end()[-1 - ta_];
    return {a.dtype(), x->transposed, y->transposed, m, n, k, x->leading, y->leading, n};
  }

  /// All products, or one in their place.
  GemmBatch batch_of_products(const Gemm& gemm, const Tensor& a, const Tensor& b, const Tensor& out) const {
    GemmBatch result{gemm, batch_of(out.shape()), {}, {}};
    result.a_steps = steps_along(result.batch, a.layout());
    result.b_steps = steps_along(result.batch, b.layout());
    if (fold_rows_of({a.layout(), ta_}, result)) return result;
    result.gemm.one_thread = better_divided(gemm, result.batch.elements());
    return result;
  }

  static void run_batch(const GemmBatch& batch, const Tensor& a, const Tensor& b, const Tensor& out) {
    run_gemm_batch(batch, a.address(), b.address(), out.address(), gemm_choices().find_or_guess(batch.gemm));
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
