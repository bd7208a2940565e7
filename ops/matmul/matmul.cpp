// Matrix multiplication.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "espalier/core/cpu/widen.h"
#include "espalier/core/deferred/stacked.h"
#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/core/open_note.h"
#include "espalier/core/open_sizes.h"
#include "espalier/core/row_kernel.h"
#include "espalier/ops/matmul/bfloat16_product.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/matmul/matmul_call.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

Variable matmul_with(const Variable& a, const Variable& b, bool transpose_a, bool transpose_b,
                     const std::source_location& where);
Variable part_of_gradient(const GradientRule& rule, size_t input, const Variable& a, const Variable& b,
                          bool transpose_a, bool transpose_b);

class BoundMatmul : public RowKernel {
 public:
  BoundMatmul(const KernelCall& call, MatmulForm form, const BindContext& context)
      : call_(*call.inputs[0], *call.inputs[1], *call.outputs[0], form, GemmEpilogue::none,
              Workspace::of(context), kept_values_of(context, 1)) {}
  void run(RandomStream) override { call_.run(); }
  void prepare() override { call_.prepare(); }
  InputSet prepared_inputs() const override { return InputSet::only(1); }
  int64_t rows_at_once(int64_t rows, int64_t tile) const override { return call_.rows_at_once(rows, tile); }
  void begin_rows() override { call_.refresh(); }
  void run_rows(int64_t begin, int64_t end) override { call_.run_rows(begin, end); }

 private:
  MatmulCall call_;
};

class Matmul : public Op, public Batchable {
 public:
  Matmul(bool transpose_a, bool transpose_b)
      : Op({.kind = OpKind::matmul,
            .linearity = Linearity::each,
            .precision = OpPrecision::product,
            .takes_halves = true,
            .anchors_epilogue = true,
            .matmul_form = MatmulForm{transpose_a, transpose_b}}),
        ta_(transpose_a),
        tb_(transpose_b) {}
  std::string_view name() const override { return "matmul"; }
  Attributes attributes() const override { return {{"transpose_a", ta_}, {"transpose_b", tb_}}; }
  NodeFlops cost(const NodeWork& work) const override {
    return product_flops({ta_, tb_}, *work.inputs[0], work.outputs[0].shape.elements());
  }

  Specs infer(const InputSpecs& in) const override {
    check_same_dtype(*in[0], *in[1], name());
    check_dtype<Reals>(*in[0], name());
    const Shape &a = in[0]->shape, &b = in[1]->shape;
    if (a.rank() < 2 || b.rank() < 2)
      throw ShapeError(
          fmt::format("matmul: takes matrices or batches of them, not {} and {}", a.str(), b.str()));
    const int64_t m = a.end()[ta_ - 2], k = a.end()[-1 - ta_], n = b.end()[-1 - tb_];
    if (k != b.end()[tb_ - 2])
      throw ShapeError(fmt::format("matmul: {} times {}: the inner sizes {} and {} differ{}",
                                   seen(a, ta_).str(), seen(b, tb_).str(), size_text(k),
                                   size_text(b.end()[tb_ - 2]), open_note(k, b.end()[tb_ - 2])));
    const int64_t sizes[] = {m, k, n};
    if (std::ranges::max(sizes) > largest_matrix_size && !may_be_open(sizes))
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
    if (is_half(out.dtype())) return run_widened(*this, call);
    if (call.inputs[0]->shape().end()[-1 - ta_] == 0) {
      std::fill_n(static_cast<char*>(out.address()), out.bytes(), char{0});
      return;
    }
    Tensor a = *call.inputs[0], b = *call.inputs[1];
    if (!gemm_takes(a.layout(), ta_)) a = a.clone();
    if (!gemm_takes(b.layout(), tb_)) b = b.clone();
    const GemmBatch product = gemm_of(a.dtype(), a.layout(), b.layout(), out.shape(), {ta_, tb_});
    const GemmLibrary library = gemm_choices().find_or_guess(product.gemm);
    if (out.rank() > 2) return run_gemm_batch(product, a.address(), b.address(), out.address(), library);
    run_gemm(product.gemm, a.address(), b.address(), out.address(), library);
  }

  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override {
    if (call.outputs[0]->elements() == 0 || call.inputs[0]->elements() == 0) return nullptr;
    if (is_half(call.outputs[0]->dtype())) return bind_bfloat16_product(call, {ta_, tb_}, context);
    return std::make_unique<BoundMatmul>(call, MatmulForm{ta_, tb_}, context);
  }
  int64_t workspace_bytes(const PlannedCall& call) const override {
    return product_workspace_bytes(call, {ta_, tb_}, call.outputs[0].shape);
  }

  Gradients gradient(const GradientRule& rule) const override {
    const Variable &g = rule.output_gradient(), a = rule.input(0), b = rule.input(1);
    Gradients result(2);
    if (rule.wants(0))
      result[0] =
          ta_ ? part_of_gradient(rule, 0, b, g, tb_, true) : part_of_gradient(rule, 0, g, b, false, !tb_);
    if (!rule.wants(1)) return result;
    // One matrix for a whole batch: one product has the sum over the batch in it.
    const bool fold = !ta_ && a.rank() > 2 && b.rank() == 2;
    const Variable x = fold ? fold_rows(a) : a, y = fold ? fold_rows(g) : g;
    result[1] =
        tb_ ? part_of_gradient(rule, 1, y, x, true, ta_) : part_of_gradient(rule, 1, x, y, !ta_, false);
    return result;
  }

  InputSet row_inputs(const InputSpecs& in) const override {
    return !ta_ && in[1]->shape.rank() == 2 ? InputSet::only(0) : InputSet::none();
  }
  Gradients batched(const Stacked& in) const override {
    const Variable &a = in[0], &b = in[1];
    if (in.is_shared(0) && in.rank(0) == 2 && in.rank(1) == 2 && in.shape(1)[tb_ ? 0 : 1] == 1) {
      // A matrix times columns is rows times the transposed matrix.
      const Variable rows = b.reshape({in.rows(), -1});
      const Variable y = matmul_with(rows, a, false, !ta_, std::source_location::current());
      return {y.reshape(in.with_rows({y.shape()[1], 1}))};
    }
    const size_t rank = std::max(in.rank(0), in.rank(1));
    const Variable x = aligned(in, 0, rank), y = aligned(in, 1, rank);
    return {matmul_with(x, y, ta_, tb_, std::source_location::current())};
  }

 private:
  /// A stacked operand whose matrices are behind as many axes as those of the other.
  static Variable aligned(const Stacked& in, size_t i, size_t rank) {
    if (in.is_shared(i) || in.rank(i) == rank) return in[i];
    const Shape own = in.shape(i);
    Dims dims(rank - own.rank(), 1);
    dims.append(own.begin(), own.end());
    return in[i].reshape(in.with_rows(Shape(std::move(dims))));
  }
  /// A shape as the product sees it.
  static Shape seen(Shape shape, bool transposed) {
    Dims& dims = shape.dims();
    if (transposed) std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
    return shape;
  }
  Shape batch(const Shape& a, const Shape& b) const {
    try {
      return broadcast(matmul_batch_of(a), matmul_batch_of(b), name());
    } catch (const ShapeError&) {
      throw ShapeError(fmt::format("matmul: {} times {}: the batches {} and {} cannot be broadcast",
                                   seen(a, ta_).str(), seen(b, tb_).str(), matmul_batch_of(a).str(),
                                   matmul_batch_of(b).str()));
    }
  }

  bool ta_, tb_;
};

OpPtr op_of(MatmulForm form) {
  static const Matmul ops[4] = {{false, false}, {false, true}, {true, false}, {true, true}};
  return OpPtr(std::shared_ptr<void>(), &ops[form.transpose_a * 2 + form.transpose_b]);
}

/// The matrix whose transpose `v` is, if it is one; then `transposed` is flipped.
Variable behind_transpose(const Variable& v, bool& transposed) {
  const Node* node = v.node();
  if (!node || !node->op().traits().transposes_matrix) return v;
  // What an eager transpose shows must be what its input still has: that may have been assigned or released.
  const Node& from = *node->inputs[0].node();
  if (node->waits && from.is_leaf() && from.version <= node->id) {
    transposed = !transposed;
    return node->inputs[0].variable();
  }
  const Tensor &shown = node->outputs[0].value, &behind = node->inputs[0].value();
  if (!node->lazy && (!behind.defined() || behind.storage().get() != shown.storage().get())) return v;
  transposed = !transposed;
  return node->inputs[0].variable();
}

Variable matmul_with(const Variable& a, const Variable& b, bool transpose_a, bool transpose_b,
                     const std::source_location& where) {
  const Variable x = behind_transpose(a, transpose_a), y = behind_transpose(b, transpose_b);
  return apply(op_of({transpose_a, transpose_b}), {&x, &y}, where);
}

/// A product as the gradient of an input, or as a part of it. Empty if it is left to the rule's caller, which
/// adds it to other parts: those of a leaf always, others if the operands are smaller than their product.
Variable part_of_gradient(const GradientRule& rule, size_t input, const Variable& a, const Variable& b,
                          bool transpose_a, bool transpose_b) {
  const Variable x = behind_transpose(a, transpose_a), y = behind_transpose(b, transpose_b);
  const Variable of = rule.input(input);
  const bool small = x.shape().elements() + y.shape().elements() < of.shape().elements();
  if (rule.adds_up(input) && x.rank() == 2 && y.rank() == 2 && (small || of.node()->is_leaf())) {
    rule.add_product(input, {x, y, {transpose_a, transpose_b}});
    return {};
  }
  return apply(op_of({transpose_a, transpose_b}), {&x, &y}, rule.where());
}

}  // namespace

Variable gradient_part(const GradientRule& rule, size_t input, const Variable& a, const Variable& b,
                       MatmulForm form) {
  return part_of_gradient(rule, input, a, b, form.transpose_a, form.transpose_b);
}

OpPtr matmul_op(MatmulForm form) { return op_of(form); }

Variable matmul(const Operand& a, const Operand& b) {
  return matmul_with(a.variable(), b.variable(), false, false, a.where());
}

}  // namespace espalier
