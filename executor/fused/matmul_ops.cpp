#include "espalier/executor/fused/matmul_ops.h"

#include <algorithm>

#include "espalier/core/op_names.h"
#include "espalier/ops/matmul/bfloat16_product.h"
#include "espalier/ops/matmul/matmul.h"
#include "espalier/ops/matmul/matmul_call.h"

namespace espalier {

namespace {

class BoundUpdate : public BoundKernel {
 public:
  BoundUpdate(const KernelCall& call, MatmulForm form, Workspace workspace)
      : p_(call.inputs[0]),
        rate_(call.inputs[1]),
        out_(call.outputs[0]),
        product_(*call.inputs[2], *call.inputs[3], *call.outputs[0], form, GemmEpilogue::accumulate,
                 std::move(workspace)) {}

  void run(RandomStream) override {
    if (p_->address() != out_->address()) copy_elements(*p_, *out_);
    product_.run(-rate_->item(), 1);
  }

 private:
  const Tensor *p_, *rate_;
  Tensor* out_;
  MatmulCall product_;
};

/// Product and epilogue in one call of the library.
class BoundLibraryEpilogue : public BoundKernel {
 public:
  BoundLibraryEpilogue(const KernelCall& call, MatmulForm form, Tensor product, GemmEpilogue epilogue,
                       size_t bias, Workspace workspace, KeptValues* kept)
      : out_(std::make_unique<Tensor>(std::move(product))),
        bias_(call.inputs[bias]),
        product_(*call.inputs[0], *call.inputs[1], *out_, form, epilogue, std::move(workspace), kept) {}

  bool is_best() const { return product_.takes_epilogue(); }
  void run(RandomStream) override { product_.run_with(bias_->address()); }
  void prepare() override { product_.prepare(); }
  InputSet prepared_inputs() const override { return InputSet::only(1); }

 private:
  std::unique_ptr<Tensor> out_;
  const Tensor* bias_;
  MatmulCall product_;
};

}  // namespace

std::unique_ptr<BoundKernel> MatmulUpdate::bind_cpu(const KernelCall& call,
                                                    const BindContext& context) const {
  return std::make_unique<BoundUpdate>(call, form_, Workspace::of(context));
}

int64_t MatmulUpdate::workspace_bytes(const PlannedCall& call) const {
  if (call.device != DeviceType::cpu) return 0;
  return product_workspace_bytes(call, form_, call.outputs[0].shape, GemmEpilogue::accumulate, 2);
}

Specs RoundedMatmul::infer(const InputSpecs& in) const {
  const Spec rounded{in[0]->dtype, in[1]->shape};
  return matmul_op(form_)->infer({in[0], &rounded});
}

NodeFlops RoundedMatmul::cost(const NodeWork& work) const { return matmul_op(form_)->cost(work); }

void RoundedMatmul::run_cpu(const KernelCall& call) const {
  const Tensor rounded = call.inputs[1]->to(call.inputs[0]->dtype());
  KernelCall own = call;
  own.inputs[1] = &rounded;
  matmul_op(form_)->run_cpu(own);
}

std::unique_ptr<BoundKernel> RoundedMatmul::bind_cpu(const KernelCall& call,
                                                     const BindContext& context) const {
  if (call.outputs[0]->elements() == 0 || call.inputs[0]->elements() == 0) return nullptr;
  return bind_bfloat16_product(call, form_, context);
}

int64_t RoundedMatmul::workspace_bytes(const PlannedCall& call) const {
  return product_workspace_bytes(call, form_, call.outputs[0].shape);
}

std::pair<GemmEpilogue, size_t> MatmulEpilogue::for_library(
    const SmallVector<const Layout*, 4>& inputs) const {
  const auto& code = program().instructions;
  const std::pair<GemmEpilogue, size_t> nothing{GemmEpilogue::none, 0};
  if (code.empty() || code.size() > 2 || program().outputs.size() != 1 ||
      program().outputs[0] != code.size() - 1)
    return nothing;
  const Instruction& add = code[0];
  if (!is_op(*add.op, "add") || add.extent != Extent::full || add.shape.rank() == 0 ||
      add.shape[-1] != anchor_output().shape[-1])
    return nothing;
  const auto is_product = [&](const Argument& a) {
    return a.from == Argument::From::input && a.index == program_input();
  };
  const bool first = is_product(add.arguments[0]);
  if (!first && !is_product(add.arguments[1])) return nothing;
  const Argument& bias = add.arguments[first ? 1 : 0];
  if (bias.from != Argument::From::input || is_product(bias)) return nothing;
  const size_t input = 2 + bias.index - (bias.index > program_input());
  const Layout& vector = *inputs[input];
  if (vector.shape.rank() == 0 || vector.shape.elements() != add.shape[-1] ||
      vector.shape[-1] != add.shape[-1] || !vector.contiguous())
    return nothing;
  if (code.size() == 1) return {GemmEpilogue::bias, input};
  const Instruction& relu = code[1];
  if (!is_op(*relu.op, "relu") || relu.arguments[0].from != Argument::From::value) return nothing;
  return {GemmEpilogue::bias_relu, input};
}

std::pair<GemmEpilogue, size_t> MatmulEpilogue::for_library(const KernelCall& call) const {
  SmallVector<const Layout*, 4> layouts;
  for (const Tensor* input : call.inputs) layouts.push_back(&input->layout());
  return for_library(layouts);
}

std::unique_ptr<BoundKernel> MatmulEpilogue::bind_cpu(const KernelCall& call,
                                                      const BindContext& context) const {
  const auto [epilogue, bias] = for_library(call);
  if (epilogue != GemmEpilogue::none && anchor_output().dtype == DType::float32) {
    Workspace workspace = Workspace::of(context);
    Tensor product = between(call, workspace).made;
    auto whole = std::make_unique<BoundLibraryEpilogue>(call, form(), std::move(product), epilogue, bias,
                                                        std::move(workspace), kept_values_of(context, 1));
    if (whole->is_best()) return whole;
  }
  return EpilogueOp::bind_cpu(call, context);
}

int64_t MatmulEpilogue::workspace_bytes(const PlannedCall& call) const {
  const int64_t in_parts = EpilogueOp::workspace_bytes(call);
  const GemmEpilogue epilogue = for_library(call.layouts).first;
  if (call.device != DeviceType::cpu || epilogue == GemmEpilogue::none ||
      anchor_output().dtype != DType::float32)
    return in_parts;
  return std::max(in_parts, between_bytes(call.device) +
                                product_workspace_bytes(call, form(), anchor_output().shape, epilogue));
}

}  // namespace espalier
