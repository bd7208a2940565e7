// Matrix products with what follows them, as nodes of a plan.
#pragma once
#include <memory>

#include "espalier/executor/fused/fused_op.h"
#include "espalier/ops/gemm.h"

namespace espalier {

/// p - rate · a · b, in one product: plain gradient descent. Inputs p, rate (one element), a, b.
class MatmulUpdate : public Op {
 public:
  explicit MatmulUpdate(MatmulForm form) : form_(form) {}
  std::string_view name() const override { return "matmul_update"; }
  OpKind kind() const override { return OpKind::matmul; }
  Attributes attributes() const override {
    return {{"transpose_a", form_.transpose_a}, {"transpose_b", form_.transpose_b}};
  }
  Specs infer(const InputSpecs& in) const override { return {*in[0]}; }
  bool can_run_in_place(size_t i) const override { return i == 0; }
  void run_cpu(const KernelCall& call) const override { bind_cpu(call)->run(call.random); }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call) const override;
  std::unique_ptr<BoundKernel> bind_cuda(const KernelCall& call) const override;

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
  OpKind kind() const override { return OpKind::matmul; }
  Attributes attributes() const override {
    return {{"transpose_a", form_.transpose_a},
            {"transpose_b", form_.transpose_b},
            {"product", static_cast<int64_t>(product_input_)},
            {"program", program_->program().str()}};
  }
  Specs infer(const InputSpecs& in) const override { return program_->infer(in); }
  bool can_write_over(size_t output, size_t input) const override;
  void run_cpu(const KernelCall& call) const override { bind_cpu(call)->run(call.random); }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call) const override;
  std::unique_ptr<BoundKernel> bind_cuda(const KernelCall& call) const override;
  bool equals(const Op& other) const override { return this == &other; }

  MatmulForm form() const { return form_; }
  const Spec& product() const { return product_; }
  const Program& program() const { return program_->program(); }

 private:
  std::pair<GemmEpilogue, size_t> for_library(const KernelCall& call) const;
  /// The output in whose memory the product can lie meanwhile.
  std::optional<size_t> landing() const;
  /// That memory, or some of its own, as a tensor of that shape.
  Tensor room(const KernelCall& call, std::optional<size_t> output) const;
  Tensor shaped(const Tensor& memory, const Shape& shape) const;

  MatmulForm form_;
  Spec product_;
  Shape seen_;
  std::shared_ptr<const FusedOp> program_;
  size_t product_input_;
};

}  // namespace espalier
