// The sum of matrix products: the gradient of a weight that is used several times. The products exist
// nowhere.
#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/autograd.h"
#include "espalier/core/deferred/stacked.h"
#include "espalier/core/error.h"
#include "espalier/ops/kept_op.h"
#include "espalier/ops/matmul/gemm_choice.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/matmul/matmul_call.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

namespace {

/// Products with a shorter inner axis are joined into panels of that many rows: one large product instead of
/// several, each of which would read and write the whole sum.
constexpr int64_t panel_rows = 256;

/// Adds up products on a CPU.
class BoundSum : public BoundKernel {
 public:
  BoundSum(const KernelCall& call, MatmulForm form, bool adds, bool in_plan, Workspace workspace)
      : call_(call), form_(form), adds_(adds) {
    const bool lone = call.inputs.size() < 4;
    for (size_t k = adds; k + 1 < call.inputs.size(); k += 2)
      add_pair(*call.inputs[k], *call.inputs[k + 1], lone);
    const Tensor& out = *call.outputs[0];
    int64_t rows = 0;
    for (const Product& product : products_)
      if (product.joined) rows = std::max(rows, product.rows);
    if (rows) {
      panel_a_ = workspace.take({rows, out.shape()[0]}, out.dtype(), out.device());
      panel_b_ = workspace.take({rows, out.shape()[1]}, out.dtype(), out.device());
    }
    for (Product& product : products_) settle(product, in_plan);
  }

  void run(RandomStream) override {
    Tensor& out = *call_.outputs[0];
    if (adds_ && call_.inputs[0]->address() != out.address())
      copy_elements(first_summand(*call_.inputs[0], out.shape()), out);
    if (!adds_ && products_.empty()) std::fill_n(static_cast<char*>(out.address()), out.bytes(), char{0});
    for (const Product& product : products_) {
      const void *a = product.pairs[0].a->address(), *b = product.pairs[0].b->address();
      if (product.joined) {
        int64_t at = 0;
        for (const Pair& pair : product.pairs) {
          put(*pair.a, form_.transpose_a, panel_a_, at, pair.rows);
          put(*pair.b, !form_.transpose_b, panel_b_, at, pair.rows);
          at += pair.rows;
        }
        a = panel_a_.address(), b = panel_b_.address();
      }
      run_gemm(product.gemm, a, b, out.address(), product.library);
    }
  }

  /// What it takes of a workspace.
  static int64_t workspace_bytes(const PlannedCall& call, MatmulForm form, bool adds) {
    int64_t panel = 0, most = 0;
    for (size_t k = adds; k + 1 < call.inputs.size(); k += 2) {
      const int64_t rows = call.inputs[k]->shape.end()[-1 - form.transpose_a];
      if (rows == 0) continue;
      if (is_joined(rows, *call.layouts[k], *call.layouts[k + 1], form, call.inputs.size() < 4))
        panel = panel + rows > panel_rows ? rows : panel + rows;
      else
        panel = 0;
      most = std::max(most, panel);
    }
    const Spec& out = call.outputs[0];
    return Workspace::bytes_for({out.dtype, {most, out.shape[0]}}) +
           Workspace::bytes_for({out.dtype, {most, out.shape[1]}});
  }

 private:
  struct Pair {
    const Tensor *a, *b;
    int64_t rows;  ///< of the inner axis
  };
  /// A call of the library: of one pair, or of several that are joined along the inner axis.
  struct Product {
    SmallVector<Pair, 1> pairs;
    int64_t rows;
    bool joined;
    Gemm gemm = {};
    GemmLibrary library = {};
  };

  static bool is_joined(int64_t rows, const Layout& a, const Layout& b, MatmulForm form, bool lone) {
    return (!lone && rows <= panel_rows / 4) || !gemm_takes(a, form.transpose_a) ||
           !gemm_takes(b, form.transpose_b);
  }
  void add_pair(const Tensor& a, const Tensor& b, bool lone) {
    const int64_t rows = a.shape().end()[-1 - form_.transpose_a];
    if (rows == 0) return;
    const bool joined = is_joined(rows, a.layout(), b.layout(), form_, lone);
    if (!joined || products_.empty() || !products_.back().joined || products_.back().rows + rows > panel_rows)
      products_.push_back({{}, 0, joined});
    products_.back().pairs.push_back({&a, &b, rows});
    products_.back().rows += rows;
  }

  void settle(Product& product, bool in_plan) {
    const Tensor& out = *call_.outputs[0];
    if (product.joined) {
      const Layout a(Shape{product.rows, out.shape()[0]}), b(Shape{product.rows, out.shape()[1]});
      product.gemm = gemm_of(out.dtype(), a, b, out.shape(), {true, false}).gemm;
    } else {
      const Pair& pair = product.pairs[0];
      product.gemm = gemm_of(out.dtype(), pair.a->layout(), pair.b->layout(), out.shape(), form_).gemm;
    }
    product.library =
        in_plan ? gemm_choices().measure(product.gemm) : gemm_choices().find_or_guess(product.gemm);
    product.gemm.beta = adds_ || &product != &products_.front() ? 1 : 0;
  }

  /// Copies a matrix to rows of a panel; its inner axis is the first (`by_rows`) or the last.
  static void put(const Tensor& x, bool by_rows, const Tensor& panel, int64_t at, int64_t rows) {
    Layout layout = panel.slice(0, at, at + rows).layout();
    if (!by_rows) {
      std::swap(layout.shape.dims()[0], layout.shape.dims()[1]);
      std::swap(layout.strides[0], layout.strides[1]);
    }
    Tensor to(panel.storage(), std::move(layout), panel.dtype());
    copy_elements(x, to);
  }

  const KernelCall call_;
  const MatmulForm form_;
  const bool adds_;
  std::vector<Product> products_;
  Tensor panel_a_, panel_b_;
};

class SumOfProducts : public Op, public Batchable {
 public:
  SumOfProducts(MatmulForm form, bool adds)
      : Op({.kind = OpKind::matmul,
            .anchors_epilogue = true,
            .in_place = adds ? InputSet::only(0) : InputSet::none(),
            .gradient_reads = adds ? InputSet::all_but(0) : InputSet::all(),
            .sums_products = true}),
        form_(form),
        adds_(adds) {}
  std::string_view name() const override { return "sum_of_products"; }
  Attributes attributes() const override {
    return {{"transpose_a", form_.transpose_a}, {"transpose_b", form_.transpose_b}, {"adds", adds_}};
  }
  NodeFlops cost(const NodeWork& work) const override {
    NodeFlops flops;
    const int64_t results = work.outputs[0].shape.elements();
    for (size_t k = adds_; k + 1 < work.inputs.size(); k += 2) {
      const NodeFlops one = product_flops(form_, *work.inputs[k], results);
      flops.product += one.product;
      flops.product_type = one.product_type;
    }
    return flops;
  }

  Specs infer(const InputSpecs& in) const override {
    if (in.size() < 2 || in.size() % 2 != (adds_ ? 1 : 0))
      throw ShapeError(fmt::format("sum_of_products: takes pairs of matrices, not {} inputs", in.size()));
    std::optional<Spec> sum;
    if (adds_) sum = *in[0];
    for (size_t k = adds_; k < in.size(); k += 2) {
      if (in[k]->shape.rank() != 2 || in[k + 1]->shape.rank() != 2)
        throw ShapeError(fmt::format("sum_of_products: takes matrices, not {} and {}", in[k]->shape.str(),
                                     in[k + 1]->shape.str()));
      const Spec product = matmul_op(form_)->infer({in[k], in[k + 1]})[0];
      if (!sum) sum = product;
      check_same_dtype(*sum, *in[k], name());
      const bool for_all_rows = sum->shape.rank() == 1 && sum->shape[0] == product.shape[1];
      if (for_all_rows) sum->shape = product.shape;
      if (!(product.shape == sum->shape))
        throw ShapeError(
            fmt::format("sum_of_products: shapes {} and {} differ", sum->shape.str(), product.shape.str()));
    }
    return {std::move(*sum)};
  }

  void run_cpu(const KernelCall& call) const override {
    if (call.outputs[0]->elements()) BoundSum(call, form_, adds_, false, {}).run({});
  }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override {
    if (call.outputs[0]->elements() == 0) return nullptr;
    return std::make_unique<BoundSum>(call, form_, adds_, true, Workspace::of(context));
  }
  int64_t workspace_bytes(const PlannedCall& call) const override {
    if (call.device == DeviceType::cpu && !is_half(call.outputs[0].dtype))
      return BoundSum::workspace_bytes(call, form_, adds_);
    int64_t bytes = 0;
    for (size_t k = adds_; call.device != DeviceType::cpu && k < call.inputs.size(); k += 2)
      bytes =
          std::max(bytes, product_workspace_bytes(call, form_, call.outputs[0].shape, GemmEpilogue::none, k));
    return bytes;
  }

  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    const auto [ta, tb] = form_;
    Gradients result(rule.inputs());
    if (adds_) result[0] = g;
    for (size_t k = adds_; k < rule.inputs(); k += 2) {
      const Variable a = rule.input(k), b = rule.input(k + 1);
      if (rule.wants(k))
        result[k] =
            ta ? gradient_part(rule, k, b, g, {tb, true}) : gradient_part(rule, k, g, b, {false, !tb});
      if (rule.wants(k + 1))
        result[k + 1] = tb ? gradient_part(rule, k + 1, g, a, {true, ta})
                           : gradient_part(rule, k + 1, a, g, {!ta, false});
    }
    return result;
  }
  InputSet row_inputs(const InputSpecs& in) const override {
    const bool one = adds_ && in.size() == 3 && !form_.transpose_a;
    return one && in[0]->shape.rank() == 1 ? InputSet::only(1) : InputSet::none();
  }
  /// Of one product. Rows of several nodes, times one matrix, are rows of one node.
  Gradients batched(const Stacked& in) const override {
    if (!adds_ || in.size() != 3) return {};
    const bool one_summand = in.is_shared(0) && in.rank(0) == 1;
    if (one_summand && !form_.transpose_a && !in.is_shared(1) && in.is_shared(2)) {
      const Shape own = in.shape(1);
      const Variable rows = in[1].reshape({in.rows() * own[0], own[1]});
      const Variable y = apply(in.op(), {&in[0], &rows, &in[2]}, std::source_location::current());
      return {y.reshape(in.with_rows({own[0], y.shape()[1]}))};
    }
    const uint64_t shared = static_cast<uint64_t>(in.is_shared(1)) | uint64_t{in.is_shared(2)} << 1;
    const Variable product =
        espalier::batched(Stacked(matmul_op(form_), in.rows(), {in[1], in[2]}, shared))[0];
    if (in.is_shared(0) || in.rank(0) == 2) return {product + in[0]};
    return {product + in[0].unsqueeze(1)};
  }

 private:
  const MatmulForm form_;
  const bool adds_;
};

}  // namespace

Tensor first_summand(const Tensor& summand, const Shape& all) {
  return Tensor(summand.storage(), broadcast_layout(summand.layout(), all), summand.dtype());
}

OpPtr sum_of_products_op(MatmulForm form, bool adds) { return kept_op<SumOfProducts>(form, adds); }

Variable sum_of_products(Variable sum, std::span<const GradientProduct> products) {
  SmallVector<const Variable*, 8> inputs;
  if (sum.defined()) inputs.push_back(&sum);
  for (const GradientProduct& product : products) {
    inputs.push_back(&product.a);
    inputs.push_back(&product.b);
  }
  return apply(sum_of_products_op(products[0].form, sum.defined()), {inputs.data(), inputs.size()},
               std::source_location::current(), sum.defined() ? 1 : 0);
}

}  // namespace espalier
