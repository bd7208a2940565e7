// How cuBLASLt computes a product: its layouts and the algorithm, found once for each case.
#pragma once
#include <compare>
#include <memory>
#include <string>

#include "espalier/core/cuda/cublaslt.h"
#include "espalier/core/op.h"
#include "espalier/ops/matmul/gemm.h"

namespace espalier::cu {

/// What the library does with a product while it is at hand; for single products, not for batches. GELU is
/// not among them: the library's is the approximation by tanh, and ours is exact.
enum class LtEpilogue : uint8_t {
  none,
  bias,            ///< adds `vector`, of n elements, to each row
  relu,            ///< max(x, 0)
  bias_relu,       ///< both
  relu_mask,       ///< and keeps in `mask` where x was positive
  bias_relu_mask,  ///< all three
  masked,          ///< 0 where `mask` has no bit: the gradient of ReLU
  masked_sums,     ///< and adds the rows up to `vector`: the gradient of a bias
  sums_of_a,       ///< adds up a along the inner axis, to `vector`, of m elements
  sums_of_b,       ///< adds up b along the inner axis, to `vector`, of n elements
};

/// Bits in a row of a mask: as many as there are columns, rounded up as the library wants it.
constexpr int64_t lt_mask_row(int64_t columns) { return (columns + 127) / 128 * 128; }

/// All that the choice of an algorithm depends on.
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
  bool measured;                                     ///< or the library's first suggestion
  uint16_t align_a, align_b, align_c, align_vector;  ///< bytes
  friend auto operator<=>(const LtCase&, const LtCase&) = default;

  /// Without the device and `measured`.
  std::string str() const;
};

struct LtRecipe {
  explicit LtRecipe(const LtCase& c);

  bool supported = false;
  LtLayout a, b, c;  ///< ours, seen column by column
  LtOperation operation;
  cublasLtMatmulAlgo_t algorithm{};
};

/// The type in which products of a dtype are summed up, and of which alpha and beta are.
constexpr DType lt_scale_type(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

/// alpha and beta as the library reads them.
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

/// Which epilogues have a vector, and a mask.
bool has_vector(LtEpilogue epilogue);
bool has_mask(LtEpilogue epilogue);
/// What the product does beside its matrices, with the addresses of its vector and its mask.
LtOperation lt_operation(const LtCase& c, void* vector, void* mask);

/// The recipe of a case. `operation` has the addresses that the choice may depend on; without one, it is the
/// recipe's own. A measured one is kept on disk.
std::shared_ptr<const LtRecipe> lt_recipe(const LtCase& c, const LtOperation* operation);

/// While it lives, products that this thread binds will be repeated, so that their algorithms are worth
/// measuring; else the library's first suggestion is taken.
class LtMeasuring {
 public:
  LtMeasuring();
  ~LtMeasuring();
  LtMeasuring(const LtMeasuring&) = delete;
  LtMeasuring& operator=(const LtMeasuring&) = delete;
  static bool wanted();

 private:
  bool before_;
};

}  // namespace espalier::cu
