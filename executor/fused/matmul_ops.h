// Matrix products fused with the pointwise programs after them.
#pragma once
#include <memory>

#include "espalier/executor/fused/epilogue.h"
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
  int64_t workspace_bytes(const PlannedCall& call) const override;

  MatmulForm form() const { return form_; }

 private:
  MatmulForm form_;
};

/// a · b in the type of a, where b is float32: a leaf, or a view of one, in a plan that writes none. It is
/// rounded, and packed, once for each version of the leaves.
class RoundedMatmul : public Op {
 public:
  explicit RoundedMatmul(MatmulForm form)
      : Op({.kind = OpKind::matmul, .takes_halves = true, .anchors_epilogue = true}), form_(form) {}
  std::string_view name() const override { return "rounded_matmul"; }
  Attributes attributes() const override {
    return {{"transpose_a", form_.transpose_a}, {"transpose_b", form_.transpose_b}};
  }
  Specs infer(const InputSpecs& in) const override;
  NodeFlops cost(const NodeWork& work) const override;
  void run_cpu(const KernelCall& call) const override;
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  int64_t workspace_bytes(const PlannedCall& call) const override;

 private:
  MatmulForm form_;
};

/// A program over the elements of a product: bias, activation, or their gradients. Where a library computes
/// all of it, that does.
class MatmulEpilogue : public EpilogueOp {
 public:
  using EpilogueOp::EpilogueOp;
  std::string_view name() const override { return "matmul_epilogue"; }
  Attributes attributes() const override {
    return {{"transpose_a", form().transpose_a},
            {"transpose_b", form().transpose_b},
            {"product", static_cast<int64_t>(program_input())},
            {"program", program().str()}};
  }
  std::unique_ptr<BoundKernel> bind_cpu(const KernelCall& call, const BindContext& context) const override;
  int64_t workspace_bytes(const PlannedCall& call) const override;

  MatmulForm form() const { return *anchor().traits().matmul_form; }

  /// What a library can do of the program for inputs that lie so: all of it, if it is a bias, alone or with a
  /// ReLU; and which input is the bias.
  std::pair<GemmEpilogue, size_t> for_library(const SmallVector<const Layout*, 4>& inputs) const;
  std::pair<GemmEpilogue, size_t> for_library(const KernelCall& call) const;
};

}  // namespace espalier
