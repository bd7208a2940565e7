#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/executor/fused/cuda/kernels.h"
#include "espalier/executor/fused/matmul_ops.h"
#include "espalier/ops/matmul/cuda/cublaslt_product.h"

namespace espalier::cu {

namespace {

KernelCall call_of(std::initializer_list<const Tensor*> inputs, Tensor& output) {
  KernelCall call;
  call.inputs = inputs;
  call.outputs = {&output};
  return call;
}

void need(const LtProduct& product, std::string_view op, const Tensor& out) {
  if (!product.supported())
    throw UnsupportedError(
        fmt::format("{}: cuBLASLt has none for {} {}", op, name(out.dtype()), out.shape().str()));
}

/// One product that accumulates into p; the rate is negated on the device.
class BoundUpdate : public BoundKernel {
 public:
  BoundUpdate(const KernelCall& call, MatmulForm form)
      : p_(call.inputs[0]),
        out_(call.outputs[0]),
        scale_(call.inputs[1]->shape(), call.inputs[1]->dtype(), out_->device()),
        one_(full({1}, 1, scale_.dtype()).to(out_->device())),
        negate_(bind_pointwise(call_of({call.inputs[1]}, scale_), "scalar::Negative")),
        product_(*call.inputs[2], *call.inputs[3], *out_, form,
                 {.added = p_->contiguous() ? p_->address() : nullptr,
                  .device_alpha = scale_.address(),
                  .device_beta = one_.address()}) {}

  bool supported() const { return product_.supported(); }
  void run(RandomStream random) override {
    negate_->run(random);
    if (!p_->contiguous()) copy_elements(*p_, *out_);
    product_.run();
  }

 private:
  const Tensor* p_;
  Tensor* out_;
  Tensor scale_, one_;
  Bound negate_;
  LtProduct product_;
};

/// The product by itself, scaled and subtracted by kernels.
class BoundUpdateInParts : public BoundKernel {
 public:
  BoundUpdateInParts(const KernelCall& call, MatmulForm form)
      : change_(call.outputs[0]->shape(), call.outputs[0]->dtype(), call.outputs[0]->device()),
        product_(*call.inputs[2], *call.inputs[3], change_, form),
        scale_(bind_pointwise(call_of({call.inputs[1], &change_}, change_), "scalar::Multiply")),
        subtract_(bind_pointwise(call_of({call.inputs[0], &change_}, *call.outputs[0]), "scalar::Subtract")) {
    need(product_, "matmul_update", change_);
  }

  void run(RandomStream random) override {
    product_.run();
    scale_->run(random);
    subtract_->run(random);
  }

 private:
  Tensor change_;
  LtProduct product_;
  Bound scale_, subtract_;
};

/// Product and bias in one call of the library.
class BoundWhole : public BoundKernel {
 public:
  BoundWhole(const MatmulEpilogue& op, const KernelCall& call, const Tensor& bias, Workspace workspace)
      : out_(op.between(call, workspace).made),
        product_(
            *call.inputs[0], *call.inputs[1], out_, op.form(),
            {.epilogue = LtEpilogue::bias, .vector = bias.address(), .workspace = std::move(workspace)}) {}

  bool supported() const { return product_.supported(); }
  void run(RandomStream) override { product_.run(); }

 private:
  Tensor out_;
  LtProduct product_;
};

/// The anchor, and a kernel over what it makes.
class BoundInParts : public BoundKernel {
 public:
  BoundInParts(const EpilogueOp& op, const KernelCall& call, const BindContext& context, Workspace workspace)
      : between_(op.between(call, workspace)),
        anchor_(op.bind_anchor(call, between_.made, context, std::move(workspace))),
        program_(bind_fused(op.program_call(call, between_.seen), op.program())) {}

  void run(RandomStream random) override {
    anchor_->run(random);
    program_->run(random);
  }
  bool can_be_captured() const override { return anchor_->can_be_captured(); }

 private:
  EpilogueOp::Between between_;
  Bound anchor_, program_;
};

/// p - rate · a · b; inputs p, rate (one element), a, b.
Bound bind_matmul_update(const Op& op, const KernelCall& call) {
  const MatmulForm form = static_cast<const MatmulUpdate&>(op).form();
  if (call.inputs[2]->elements() == 0)  // nothing is subtracted
    return bound([p = call.inputs[0], out = call.outputs[0]](RandomStream) {
      if (p->address() != out->address()) copy_elements(*p, *out);
    });
  if (call.inputs[1]->dtype() == lt_scale_type(call.outputs[0]->dtype()))
    if (auto whole = std::make_unique<BoundUpdate>(call, form); whole->supported()) return whole;
  return std::make_unique<BoundUpdateInParts>(call, form);
}

Bound bind_matmul_epilogue(const Op& anchored, const KernelCall& call, const BindContext& context) {
  const auto& op = static_cast<const MatmulEpilogue&>(anchored);
  const auto [epilogue, bias] = op.for_library(call);
  // A ReLU of cuBLASLt's makes NaN 0, which would hide the divergence of a training.
  if (epilogue == GemmEpilogue::bias) {
    auto whole = std::make_unique<BoundWhole>(op, call, *call.inputs[bias], Workspace::of(context));
    if (whole->supported()) return whole;
  }
  return bind_epilogue(op, call, context);
}

}  // namespace

Bound bind_epilogue(const Op& op, const KernelCall& call, const BindContext& context) {
  return std::make_unique<BoundInParts>(static_cast<const EpilogueOp&>(op), call, context,
                                        Workspace::of(context));
}

void add_convolution_epilogue_kernels(KernelRegistry& kernels) {
  kernels.add("conv_epilogue", bind_epilogue);
}

void add_fused_matmul_kernels(KernelRegistry& kernels) {
  kernels.add("matmul_update", bind_matmul_update);
  kernels.add("matmul_epilogue", bind_matmul_epilogue);
  kernels.add("epilogue", bind_epilogue);
}

}  // namespace espalier::cu
