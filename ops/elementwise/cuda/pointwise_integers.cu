// Rounding, divisions with a rest, bits, and what is no finite number.
#include "espalier/core/scalar_integers.h"
#include "espalier/ops/elementwise/cuda/pointwise_kernels.cuh"

namespace espalier::cu {

void add_integers(PointwiseTable& table) {
  using Integers = Types<int32_t, int64_t>;
  using IntegersAndBools = Types<int32_t, int64_t, bool>;
  add_unary<scalar::Ceil>(table, NumberTypes());
  add_unary<scalar::Round>(table, NumberTypes());
  add_unary<scalar::Trunc>(table, NumberTypes());
  add_binary<scalar::Fmod>(table, NumberTypes());
  add_binary<scalar::Remainder>(table, NumberTypes());
  add_binary<scalar::FloorDivide>(table, NumberTypes());
  add_binary<scalar::Heaviside>(table, NumberTypes());
  add_unary<scalar::IsNan>(table, NumberTypes());
  add_unary<scalar::IsInf>(table, NumberTypes());
  add_unary<scalar::IsPosInf>(table, NumberTypes());
  add_unary<scalar::IsNegInf>(table, NumberTypes());
  add_unary<scalar::IsFinite>(table, NumberTypes());
  add_binary<scalar::LogicalXor>(table, Types<bool>());
  add_binary<scalar::BitwiseAnd>(table, IntegersAndBools());
  add_binary<scalar::BitwiseOr>(table, IntegersAndBools());
  add_binary<scalar::BitwiseXor>(table, IntegersAndBools());
  add_unary<scalar::BitwiseNot>(table, IntegersAndBools());
  add_binary<scalar::BitwiseLeftShift>(table, Integers());
  add_binary<scalar::BitwiseRightShift>(table, Integers());
}

}  // namespace espalier::cu
