// Further functions of reals, and special functions.
#include "espalier/core/scalar_functions.h"

#include "espalier/core/scalar_special.h"
#include "espalier/ops/elementwise/cuda/pointwise_kernels.cuh"

namespace espalier::cu {

void add_functions(PointwiseTable& table) {
  add_each_real(table, scalar::MoreRealFunctions());
  add_each_real(table, scalar::SpecialFunctions());
  add_unary<scalar::Cube>(table, NumberTypes());
  add_binary<scalar::Atan2>(table, RealTypes());
  add_binary<scalar::Hypot>(table, RealTypes());
  add_binary<scalar::LogAddExp>(table, RealTypes());
  add_binary<scalar::Polygamma>(table, RealTypes());
  add_binary<scalar::XLogY>(table, RealTypes());
}

}  // namespace espalier::cu
