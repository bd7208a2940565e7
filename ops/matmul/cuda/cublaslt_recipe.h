// The layouts and the algorithm of a product by cuBLASLt, determined once for each case.
#pragma once
#include <compare>
#include <memory>
#include <string>

#include "espalier/core/cuda/cublaslt.h"
#include "espalier/core/op.h"
#include "espalier/ops/matmul/gemm.h"

namespace espalier::cu {

/// The epilogues of the library that are used, for single products only. GELU is not used: the library's is
/// the approximation by tanh, Espalier's is exact.
enum class LtEpilogue : uint8_t {
  none,
  bias,            ///< adds `vector`, of n elements, to each row
  relu,            ///< max(x, 0)
  bias_relu,       ///< both
  relu_mask,       ///< also writes to `mask` where x was positive
  bias_relu_mask,  ///< all three
  masked,          ///< 0 where `mask` has no bit: the gradient of ReLU
  masked_sums,     ///< also sums the rows into `vector`: the gradient of a bias
};

/// The bits in a row of a mask: the number of columns, rounded up as the library requires.
constexpr int64_t lt_mask_row(int64_t columns) { return (columns + 127) / 128 * 128; }

/// All properties on which the choice of an algorithm depends.
struct LtCase {
  int64_t m, n, k, lda, ldb, ldc;
  int64_t batch, step_a, step_b, step_c;
  int device;
  DType dtype;
  bool transpose_a, transpose_b;
  bool tf32;
  LtEpilogue epilogue;
  bool adds;                                         ///< beta is not 0
  bool device_scalars;                               ///< alpha and beta are read from device memory
  bool measured;                                     ///< else the library's first suggestion
  uint16_t align_a, align_b, align_c, align_vector;  ///< bytes
  friend auto operator<=>(const LtCase&, const LtCase&) = default;

  /// Text without the device and `measured`.
  std::string str() const;
};

struct LtRecipe {
  explicit LtRecipe(const LtCase& c);

  bool supported = false;
  LtLayout a, b, c;  ///< row-major matrices as column-major ones
  LtOperation operation;
  cublasLtMatmulAlgo_t algorithm{};
};

/// The accumulation type of products of a dtype, and the type of alpha and beta.
constexpr DType lt_scale_type(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

/// alpha and beta in the form that the library reads.
struct LtScalars {
  float alpha32 = 1, beta32 = 0;
  double alpha64 = 1, beta64 = 0;
  const void *device_alpha = nullptr, *device_beta = nullptr;

  const void* alpha(DType dtype) const { return chosen(dtype, device_alpha, &alpha32, &alpha64); }
  const void* beta(DType dtype) const { return chosen(dtype, device_beta, &beta32, &beta64); }

 private:
  static const void* chosen(DType dtype, const void* device, const float* narrow, const double* wide) {
    if (device) return device;
    return lt_scale_type(dtype) == DType::float64 ? static_cast<const void*>(wide) : narrow;
  }
};

/// Returns true for epilogues with a vector, and with a mask.
bool has_vector(LtEpilogue epilogue);
bool has_mask(LtEpilogue epilogue);
/// The operation of a case, with the addresses of its vector and its mask.
LtOperation lt_operation(const LtCase& c, void* vector, void* mask);

/// The recipe of a case. `operation` has the addresses that the choice may depend on; by default it is the
/// recipe's own. Measured choices are kept on disk.
std::shared_ptr<const LtRecipe> lt_recipe(const LtCase& c, const LtOperation* operation);

}  // namespace espalier::cu
