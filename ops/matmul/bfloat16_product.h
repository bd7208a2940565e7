// A product of bfloat16 matrices, or of batches of them, by one primitive of oneDNN.
#pragma once
#include <memory>
#include <optional>

#include "espalier/core/kept_values.h"
#include "espalier/core/op.h"
#include "espalier/core/workspace.h"
#include "espalier/ops/matmul/gemm_primitive.h"

namespace espalier {

/// Whether products of a dtype are computed so: bfloat16 on processors that are faster with it.
bool has_bfloat16_products(DType dtype);

/// The kernel of such a product: operands 0 and 1 of a call. Null if there is none.
std::unique_ptr<BoundKernel> bind_bfloat16_product(const KernelCall& call, MatmulForm form,
                                                   const BindContext& context);

/// out = a · b for tensors at fixed addresses, which are not empty.
class Bfloat16Product {
 public:
  /// b may be float32: it is rounded in each run. With `kept`, b is packed, and rounded, once for each
  /// version of the leaves. Throws UnsupportedError if oneDNN has no such primitive.
  Bfloat16Product(const Tensor& a, const Tensor& b, const Tensor& out, MatmulForm form, Workspace workspace,
                  KeptValues* kept);
  void run();
  /// See BoundKernel.
  void prepare() {
    if (packed_) (void)packed_b();
  }

  /// What the product of inputs 0 and 1 of a call takes of a workspace, with any number of threads of a
  /// replica. Memory for a b that is rounded is not part of it. Nothing if there is no primitive.
  static std::optional<int64_t> workspace_bytes(const PlannedCall& call, MatmulForm form);

 private:
  const void* packed_b();

  const Tensor *a_, *b_, *out_;
  Tensor seen_a_, seen_b_;  // the operands, or buffers for copies of them
  GemmBatch product_;
  std::optional<GemmPrimitive> primitive_;
  KeptValues* kept_ = nullptr;
  std::shared_ptr<KeptValue> packed_;  // b, where it is kept
  Tensor rounded_;                     // b, where it is not
  Tensor scratch_;
};

}  // namespace espalier
