#include "espalier/ops/matmul/narrow_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/ops/matmul/matmul_call.h"
#include "espalier/ops/matmul/onednn_gemm.h"

namespace espalier {

bool has_narrow_products(DType dtype) { return dtype == DType::bfloat16 && onednn_has_bfloat16(); }

std::unique_ptr<BoundKernel> bind_narrow(const KernelCall& call, MatmulForm form,
                                         const BindContext& context) {
  if (!has_narrow_products(call.outputs[0]->dtype())) return nullptr;
  try {
    const auto product =
        std::make_shared<NarrowProduct>(*call.inputs[0], *call.inputs[1], *call.outputs[0], form,
                                        Workspace::of(context), kept_values_of(context, 1));
    return bound([product](RandomStream) { product->run(); });
  } catch (const UnsupportedError&) {
    return nullptr;
  }
}

NarrowProduct::NarrowProduct(const Tensor& a, const Tensor& b, const Tensor& out, MatmulForm form,
                             Workspace workspace, KeptValues* kept)
    : a_(&a), b_(&b), out_(&out), seen_a_(a), seen_b_(b) {
  const auto copy = [&](const Tensor& x) { return workspace.take(x.shape(), x.dtype(), x.device()); };
  if (!gemm_takes(a.layout(), form.transpose_a)) seen_a_ = copy(a);
  if (!gemm_takes(b.layout(), form.transpose_b)) seen_b_ = copy(b);
  product_ = gemm_of(a.dtype(), seen_a_.layout(), seen_b_.layout(), out.shape(), form);
  if (seen_b_.address() == b.address()) kept_ = kept;
  const bool packs = kept_ || b.dtype() != a.dtype();
  primitive_.emplace(product_, packs ? GemmLibrary::onednn_packed : GemmLibrary::onednn_matmul, b.dtype());
  if (kept_) {
    const Gemm& g = product_.gemm;
    const std::string key = fmt::format("{} {} {} {} ", b.address(), name(b.dtype()), g.transpose_b, g.ldb);
    packed_ = kept_->of(key + primitive_->packed_layout(), primitive_->packed_bytes());
  } else if (packs) {
    rounded_ = Tensor({primitive_->packed_bytes()}, DType::boolean, b.device());
  }
  if (const int64_t bytes = primitive_->scratch_bytes())
    scratch_ = workspace.take({bytes}, DType::boolean, out.device());
}

void NarrowProduct::run() {
  if (seen_a_.address() != a_->address()) copy_elements(*a_, seen_a_);
  if (seen_b_.address() != b_->address()) copy_elements(*b_, seen_b_);
  const GemmThreads threads(threads_for(product_, num_threads()));
  primitive_->run(seen_a_.address(), packed_b(), nullptr, const_cast<void*>(out_->address()),
                  scratch_.defined() ? const_cast<void*>(scratch_.address()) : nullptr);
}

const void* NarrowProduct::packed_b() {
  if (packed_) {
    packed_->update(kept_->version(), [&] { primitive_->pack(seen_b_.address(), packed_->address()); });
    return packed_->address();
  }
  if (!rounded_.defined()) return seen_b_.address();
  primitive_->pack(seen_b_.address(), rounded_.address());
  return rounded_.address();
}

std::optional<int64_t> NarrowProduct::workspace_bytes(const PlannedCall& call, MatmulForm form) {
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
  int64_t most = 0;
  try {
    for (const bool packs : {false, true}) {
      if (!packs && b_type != product.gemm.dtype) continue;
      const GemmLibrary which = packs ? GemmLibrary::onednn_packed : GemmLibrary::onednn_matmul;
      for (int replicas = 1, last = 0; replicas <= num_threads(); ++replicas) {
        const int threads = num_threads() / replicas;
        if (threads == std::exchange(last, threads)) continue;
        most = std::max(most, GemmPrimitive::scratch_bytes(product, which, b_type, threads));
      }
    }
  } catch (const UnsupportedError&) {
    return std::nullopt;
  }
  return copies + aligned_bytes(most);
}

}  // namespace espalier
