// In place of ../onednn: no matrix is packed by a library without oneDNN.
#include "espalier/ops/recurrent/packed_step_product.h"

namespace espalier {

std::unique_ptr<PackedStepProduct> onednn_step_product(const StepProductSizes&, Workspace&) {
  return nullptr;
}
std::optional<int64_t> onednn_step_product_bytes(const StepProductSizes&) { return std::nullopt; }

}  // namespace espalier
