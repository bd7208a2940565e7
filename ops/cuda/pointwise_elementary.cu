// Functions of reals.
#include "espalier/ops/cuda/pointwise_kernels.cuh"

namespace espalier::cu {

namespace {

template <class... F>
void add_each(PointwiseTable& table, scalar::Functors<F...>) {
  (add_unary<F>(table, RealTypes()), ...);
}

}  // namespace

void add_elementary(PointwiseTable& table) {
  add_each(table, scalar::RealFunctions());
  add_binary<scalar::GeluGradient>(table, RealTypes());
  add_binary<scalar::ReluGradient>(table, RealTypes());
}

}  // namespace espalier::cu
