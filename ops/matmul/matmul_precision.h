// The precision of float32 matrix products on GPUs.
#pragma once
#include <cstdint>
#include <optional>

#include "espalier/core/scoped_value.h"

namespace espalier {

/// `ieee`: float32 throughout. `tf32`: operands are rounded to 10 bits of mantissa for tensor cores, which
/// are several times faster; sums are float32. `mixed`: that of plans in 16 bits; recurrences, whose values
/// stay in float32 there, multiply in TF32, and other products of float32 in float32.
enum class MatmulPrecision : uint8_t { ieee, mixed, tf32 };

/// Allows TF32 for eager products of float32 matrices on GPUs, in all threads. The default is false.
void allow_tf32(bool allow);

/// The precision of products that this thread binds: that of the innermost MatmulPrecisionScope, else that of
/// allow_tf32.
MatmulPrecision matmul_precision();

/// Sets the precision of this thread during its lifetime.
class MatmulPrecisionScope {
 public:
  explicit MatmulPrecisionScope(MatmulPrecision precision);

 private:
  ScopedValue<std::optional<MatmulPrecision>> scope_;
};

}  // namespace espalier
