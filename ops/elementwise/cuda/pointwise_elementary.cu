// Functions of reals.
#include "espalier/ops/elementwise/cuda/pointwise_kernels.cuh"

namespace espalier::cu {

void add_elementary(PointwiseTable& table) {
  add_each_real(table, scalar::RealFunctions());
  add_binary<scalar::ReluGradient>(table, RealTypes());
}

}  // namespace espalier::cu
