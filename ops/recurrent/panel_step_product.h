// The products of a recurrence by kernels of this library.
#pragma once
#include <memory>

#include "espalier/ops/recurrent/packed_step_product.h"

namespace espalier {

/// Packs the matrix in panels of few columns, by which each step's rows are multiplied.
std::unique_ptr<PackedStepProduct> panel_step_product(const StepProductSizes& sizes, Workspace& workspace);
/// The bytes that this takes from a workspace.
int64_t panel_step_product_bytes(const StepProductSizes& sizes);

}  // namespace espalier
