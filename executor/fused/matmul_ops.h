// Matrix products fused with the pointwise programs after them.
#pragma once
#include <memory>

#include "espalier/executor/fused/fused_op.h"
#include "espalier/ops/matmul/gemm.h"

namespace espalier {

/// p - rate · a · b, in one product: plain gradient descent. Inputs p, rate (one element), a, b.
class MatmulUpdate : public Op {
 public:
  explicit MatmulUpdate(MatmulForm form)
      : Op({.kind = OpKind::matmul, .in_place = InputSet::only(0)}), form_(form) {}
  std::string_view name() const override { return "matmul_update"; }
  Attributes attributes() const override {
    return {{"transpose_a", form_.transpose_a}, {"transpose_b", form_.transpose_b}};
  }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  NodeFlops cost(const NodeWork& work) const override {
    return product_flops(form_, *work.inputs[2], work.outputs[0].shape.elements());
  }
  void run_cpu(const KernelCall& call) const override { bind_cpu(call, {})->run(call.random); }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;

  MatmulForm form() const { return form_; }

 private:
  MatmulForm form_;
};

/// A program over the elements of a product: bias, activation, or their gradients. Inputs a, b, and those of
/// the program but for `product`, which is the product.
class MatmulEpilogue : public Op {
 public:
  /// The program sees the product as `seen`: the same elements, maybe in another shape.
  MatmulEpilogue(MatmulForm form, Spec product, Shape seen, std::shared_ptr<const FusedOp> program,
                 size_t product_input);
  std::string_view name() const override { return "matmul_epilogue"; }
  Attributes attributes() const override {
    return {{"transpose_a", form_.transpose_a},
            {"transpose_b", form_.transpose_b},
            {"product", static_cast<int64_t>(product_input_)},
            {"program", program_->program().str()}};
  }
  Specs infer(const InputSpecs& in) const override { return program_->infer(in); }
  bool can_write_over(size_t output, size_t input) const override;
  NodeFlops cost(const NodeWork& work) const override;
  void run_cpu(const KernelCall& call) const override { bind_cpu(call, {})->run(call.random); }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  bool equals(const Op& other) const override { return this == &other; }

  MatmulForm form() const { return form_; }
  const Spec& product() const { return product_; }
  const Program& program() const { return program_->program(); }
  /// Which of the program's inputs is the product, and the shape in which it sees that.
  size_t product_input() const { return product_input_; }
  const Shape& seen() const { return seen_; }

  /// What a library can do of the program: all of it, if it is a bias, alone or with a ReLU; and which input
  /// of the call is the bias.
  std::pair<GemmEpilogue, size_t> for_library(const KernelCall& call) const;
  /// The output whose memory can hold the product.
  std::optional<size_t> product_output() const;
  /// That output, or new memory.
  Tensor scratch(const KernelCall& call, std::optional<size_t> output) const;
  Tensor shaped(const Tensor& memory, const Shape& shape) const;

 private:
  MatmulForm form_;
  Spec product_;
  Shape seen_;
  std::shared_ptr<const FusedOp> program_;
  size_t product_input_;
};

}  // namespace espalier
