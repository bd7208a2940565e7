#include <fmt/format.h>

#include <algorithm>

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

/// A program over a product. The inputs of the call are a, b, and those of the program but for `input`, which
/// is the product.
struct ProductProgram {
  MatmulForm form;
  const Program& program;
  size_t input;
  Tensor product, seen;  // one memory, in the shapes of the product and of the program
  GemmEpilogue whole;    // the library epilogue that equals the program, if any
  const Tensor* bias;    // of that epilogue
};

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

/// Product and epilogue in one call of the library.
class BoundWhole : public BoundKernel {
 public:
  BoundWhole(const KernelCall& call, const ProductProgram& x)
      : out_(x.product),
        product_(*call.inputs[0], *call.inputs[1], out_, x.form,
                 {.epilogue = x.whole == GemmEpilogue::bias ? LtEpilogue::bias : LtEpilogue::bias_relu,
                  .vector = x.bias->address()}) {}

  bool supported() const { return product_.supported(); }
  void run(RandomStream) override { product_.run(); }

 private:
  Tensor out_;
  LtProduct product_;
};

/// The product, and a kernel over it.
class BoundInParts : public BoundKernel {
 public:
  BoundInParts(const KernelCall& call, ProductProgram x)
      : out_(std::move(x.product)),
        seen_(std::move(x.seen)),
        product_(*call.inputs[0], *call.inputs[1], out_, x.form),
        program_(bind_fused(program_call(call, x.input), x.program)) {
    need(product_, "matmul_epilogue", out_);
  }

  void run(RandomStream random) override {
    product_.run();
    program_->run(random);
  }

 private:
  KernelCall program_call(const KernelCall& call, size_t input) const {
    KernelCall result = call;
    result.inputs.clear();
    result.inputs.append(call.inputs.begin() + 2, call.inputs.end());
    result.inputs.insert(input, &seen_);
    return result;
  }

  Tensor out_, seen_;
  LtProduct product_;
  Bound program_;
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

Bound bind_matmul_epilogue(const Op& anchor, const KernelCall& call) {
  const auto& op = static_cast<const MatmulEpilogue&>(anchor);
  // A kernel that goes over its elements more than once cannot write over what it still has to read.
  const bool once = std::ranges::all_of(
      op.program().instructions, [](const Instruction& n) { return n.kind == Instruction::Kind::map; });
  const Tensor memory = op.scratch(call, once ? op.product_output() : std::nullopt);
  const auto [epilogue, bias] = op.for_library(call);
  ProductProgram x{op.form(),
                   op.program(),
                   op.product_input(),
                   op.shaped(memory, op.product().shape),
                   op.shaped(memory, op.seen()),
                   epilogue,
                   epilogue == GemmEpilogue::none ? nullptr : call.inputs[bias]};
  if (x.whole == GemmEpilogue::bias || x.whole == GemmEpilogue::bias_relu)
    if (auto whole = std::make_unique<BoundWhole>(call, x); whole->supported()) return whole;
  return std::make_unique<BoundInParts>(call, std::move(x));
}

}  // namespace

void add_fused_matmul_kernels(KernelRegistry& kernels) {
  kernels.add("matmul_update", bind_matmul_update);
  kernels.add("matmul_epilogue", bind_matmul_epilogue);
}

}  // namespace espalier::cu
