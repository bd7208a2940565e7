// Arithmetic.
#include "espalier/ops/elementwise/cuda/pointwise_fold.cuh"

namespace espalier::cu {

void add_arithmetic(PointwiseTable& table) {
  add_binary<scalar::Add>(table, NumberTypes());
  add_fold<scalar::Add>(table, NumberTypes());
  add_binary<scalar::Subtract>(table, NumberTypes());
  add_binary<scalar::Multiply>(table, NumberTypes());
  add_binary<scalar::Divide>(table, NumberTypes());
  add_binary<scalar::Power>(table, NumberTypes());
  add_binary<scalar::Maximum>(table, NumberTypes());
  add_binary<scalar::Minimum>(table, NumberTypes());
  add_unary<scalar::Negative>(table, NumberTypes());
  add_unary<scalar::Reciprocal>(table, RealTypes());
  add_unary<scalar::Square>(table, NumberTypes());
  add_unary<scalar::Abs>(table, NumberTypes());
  add_unary<scalar::Sign>(table, NumberTypes());
  add_unary<scalar::Floor>(table, NumberTypes());
}

}  // namespace espalier::cu
