// Activations and their slopes.
#include "espalier/core/scalar_activations.h"
#include "espalier/ops/elementwise/cuda/pointwise_kernels.cuh"

namespace espalier::cu {

void add_activations(PointwiseTable& table) {
  add_each_real(table, scalar::Activations());
  add_binary<scalar::GeluGradient>(table, RealTypes());
  add_binary<scalar::Softplus>(table, RealTypes());
  add_binary<scalar::Elu>(table, RealTypes());
  add_binary<scalar::EluSlope>(table, RealTypes());
  add_binary<scalar::Celu>(table, RealTypes());
  add_binary<scalar::CeluSlope>(table, RealTypes());
  add_binary<scalar::LeakyRelu>(table, RealTypes());
  add_binary<scalar::SoftShrink>(table, RealTypes());
  add_binary<scalar::HardShrink>(table, RealTypes());
}

}  // namespace espalier::cu
