// General matrix multiplication by the libraries that do it best.
#pragma once
#include <cstdint>
#include <string_view>

#include "espalier/core/dtype.h"

namespace espalier {

enum class GemmLibrary : uint8_t { openblas, onednn };
std::string_view name(GemmLibrary library);

/// c[m, n] = op(a) · op(b), row-major; a transposed operand is stored as [k, m] or [n, k]. Leading dimensions
/// count elements. Sizes fit 31 bits.
struct Gemm {
  DType dtype;
  bool transpose_a, transpose_b;
  int64_t m, n, k, lda, ldb, ldc;
};

void run_gemm(const Gemm& gemm, const void* a, const void* b, void* c, GemmLibrary library);

/// The library that was measured to be faster for this product, or a fair guess if it was not measured.
GemmLibrary gemm_library(const Gemm& gemm);
/// Measures both libraries (some milliseconds, once in a process for each shape and number of threads).
GemmLibrary measure_gemm(const Gemm& gemm);

}  // namespace espalier
