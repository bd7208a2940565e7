// Functions of reals.
#include "espalier/ops/cuda/pointwise_kernels.cuh"

namespace espalier::cu {

void add_elementary(PointwiseTable& table) {
  add_unary<scalar::Exp>(table, RealTypes());
  add_unary<scalar::Log>(table, RealTypes());
  add_unary<scalar::Log1p>(table, RealTypes());
  add_unary<scalar::Sqrt>(table, RealTypes());
  add_unary<scalar::Sin>(table, RealTypes());
  add_unary<scalar::Cos>(table, RealTypes());
  add_unary<scalar::Tanh>(table, RealTypes());
  add_unary<scalar::Sigmoid>(table, RealTypes());
  add_unary<scalar::Erf>(table, RealTypes());
  add_unary<scalar::Gelu>(table, RealTypes());
  add_binary<scalar::GeluGradient>(table, RealTypes());
  add_unary<scalar::Relu>(table, RealTypes());
  add_binary<scalar::ReluGradient>(table, RealTypes());
}

}  // namespace espalier::cu
