// The choice of cuBLASLt's algorithm for a product: its first suggestion, or the fastest one by measurement.
#pragma once
#include <optional>

#include "espalier/ops/matmul/cuda/cublaslt_recipe.h"

namespace espalier::cu {

/// The algorithm for a case; none if the library does not support it.
std::optional<cublasLtMatmulAlgo_t> choose_algorithm(const LtCase& c, const LtRecipe& recipe,
                                                     const LtOperation& operation);

/// Whether the algorithm of a case has been measured before, by this or another process.
bool has_measurement(const LtCase& c);

}  // namespace espalier::cu
