// In place of ../onednn: no matrix is packed by a library without oneDNN.
#include "espalier/ops/recurrent/packed_step_product.h"

namespace espalier {

std::unique_ptr<PackedStepProduct> pack_step_product(const StepProductSizes&, Workspace&) { return nullptr; }
int64_t packed_step_product_bytes(const StepProductSizes&) { return 0; }

}  // namespace espalier
