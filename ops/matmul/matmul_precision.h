// How exactly products of float32 matrices are computed on GPUs.
#pragma once
#include <cstdint>
#include <optional>

namespace espalier {

/// `ieee`: in float32 throughout. `tf32`: operands are rounded to 10 bits of mantissa first, which tensor
/// cores multiply several times faster; sums stay float32.
enum class MatmulPrecision : uint8_t { ieee, tf32 };

/// Lets eager products of float32 matrices on GPUs be computed in TF32; off at first. It holds for all
/// threads.
void allow_tf32(bool allow);

/// What products that this thread binds now get: that of the innermost MatmulPrecisionScope, else what
/// allow_tf32 said.
MatmulPrecision matmul_precision();

/// Chooses for this thread while it lives.
class MatmulPrecisionScope {
 public:
  explicit MatmulPrecisionScope(MatmulPrecision precision);
  ~MatmulPrecisionScope();
  MatmulPrecisionScope(const MatmulPrecisionScope&) = delete;
  MatmulPrecisionScope& operator=(const MatmulPrecisionScope&) = delete;

 private:
  std::optional<MatmulPrecision> before_;
};

}  // namespace espalier
