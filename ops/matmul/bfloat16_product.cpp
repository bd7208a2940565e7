#include "espalier/ops/matmul/bfloat16_product.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/ops/matmul/matmul_call.h"
#include "espalier/ops/matmul/onednn_gemm.h"

namespace espalier {

namespace {

class BoundBfloat16Product : public BoundKernel {
 public:
  BoundBfloat16Product(const KernelCall& call, MatmulForm form, const BindContext& context)
      : product_(*call.inputs[0], *call.inputs[1], *call.outputs[0], form, Workspace::of(context),
                 kept_values_of(context, 1)) {}
  void run(RandomStream) override { product_.run(); }
  void prepare() override { product_.prepare(); }
  InputSet prepared_inputs() const override { return InputSet::only(1); }

 private:
  Bfloat16Product product_;
};

}  // namespace

bool has_bfloat16_products(DType dtype) { return dtype == DType::bfloat16 && onednn_has_bfloat16(); }

std::unique_ptr<BoundKernel> bind_bfloat16_product(const KernelCall& call, MatmulForm form,
                                                   const BindContext& context) {
  if (!has_bfloat16_products(call.outputs[0]->dtype())) return nullptr;
  try {
    return std::make_unique<BoundBfloat16Product>(call, form, context);
  } catch (const UnsupportedError&) {
    return nullptr;
  }
}

Bfloat16Product::Bfloat16Product(const Tensor& a, const Tensor& b, const Tensor& out, MatmulForm form,
                                 Workspace workspace, KeptValues* kept)
    : a_(&a), b_(&b), out_(&out), seen_a_(a), seen_b_(b), kept_(kept) {
  const auto copy = [&](const Tensor& x) { return workspace.take(x.shape(), x.dtype(), x.device()); };
  if (!gemm_takes(a.layout(), form.transpose_a)) seen_a_ = copy(a);
  if (!gemm_takes(b.layout(), form.transpose_b)) seen_b_ = copy(b);
  product_ = gemm_of(a.dtype(), seen_a_.layout(), seen_b_.layout(), out.shape(), form);
  const bool packs = kept_ || b.dtype() != a.dtype();
  primitive_.emplace(product_, packs ? GemmLibrary::onednn_packed : GemmLibrary::onednn_matmul, b.dtype());
  if (kept_) {
    const std::string key = fmt::format("{} {} {} {} {} ", b.address(), name(b.dtype()), b.shape().str(),
                                        fmt::join(b.strides(), ","), form.transpose_b);
    packed_ = kept_->of(key + primitive_->packed_layout(), primitive_->packed_bytes());
  } else if (packs) {
    rounded_ = Tensor({primitive_->packed_bytes()}, DType::boolean, b.device());
  }
  if (const int64_t bytes = primitive_->scratch_bytes())
    scratch_ = workspace.take({bytes}, DType::boolean, out.device());
}

void Bfloat16Product::run() {
  if (seen_a_.address() != a_->address()) copy_elements(*a_, seen_a_);
  const GemmThreads threads(threads_for(product_, num_threads()));
  primitive_->run(seen_a_.address(), packed_b(), nullptr, const_cast<void*>(out_->address()),
                  scratch_.defined() ? const_cast<void*>(scratch_.address()) : nullptr);
}

const void* Bfloat16Product::packed_b() {
  const auto plain = [&] {
    if (seen_b_.address() != b_->address()) copy_elements(*b_, seen_b_);
    return seen_b_.address();
  };
  if (packed_) {
    packed_->update(kept_->version(), [&] { primitive_->pack(plain(), packed_->address()); });
    return packed_->address();
  }
  if (!rounded_.defined()) return plain();
  primitive_->pack(plain(), rounded_.address());
  return rounded_.address();
}

std::optional<int64_t> Bfloat16Product::workspace_bytes(const PlannedCall& call, MatmulForm form) {
  int64_t copies = 0;
  const auto seen = [&](size_t input, bool transposed) {
    const Layout& layout = *call.layouts[input];
    if (gemm_takes(layout, transposed)) return layout;
    copies += Workspace::bytes_for({call.inputs[input]->dtype, layout.shape});
    return Layout(layout.shape);
  };
  const Layout a = seen(0, form.transpose_a), b = seen(1, form.transpose_b);
  const GemmBatch product = gemm_of(call.inputs[0]->dtype, a, b, call.outputs[0].shape, form);
  const DType b_type = call.inputs[1]->dtype;
  std::optional<int64_t> most;
  for (const GemmLibrary which : {GemmLibrary::onednn_matmul, GemmLibrary::onednn_packed}) {
    if (!packs(which) && b_type != product.gemm.dtype) continue;
    for (int replicas = 1, last = 0; replicas <= num_threads(); ++replicas) {
      const int threads = num_threads() / replicas;
      if (threads == std::exchange(last, threads)) continue;
      const auto bytes = GemmPrimitive::scratch_bytes(product, which, b_type, threads);
      if (bytes) most = std::max(most.value_or(0), *bytes);
    }
  }
  return most ? std::optional(copies + aligned_bytes(*most)) : std::nullopt;
}

}  // namespace espalier
