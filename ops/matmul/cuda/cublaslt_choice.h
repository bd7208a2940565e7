// Which of cuBLASLt's algorithms computes a product: its first suggestion, or the one that was measured to be
// fastest.
#pragma once
#include <optional>

#include "espalier/ops/matmul/cuda/cublaslt_recipe.h"

namespace espalier::cu {

/// Nothing if the library has none for this case.
std::optional<cublasLtMatmulAlgo_t> choose_algorithm(const LtCase& c, const LtRecipe& recipe,
                                                     const LtOperation& operation);

}  // namespace espalier::cu
