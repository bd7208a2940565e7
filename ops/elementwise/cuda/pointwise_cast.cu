// Casts between all element types.
#include "espalier/core/cast_types.h"
#include "espalier/ops/elementwise/cuda/pointwise_kernels.cuh"

namespace espalier::cu {

namespace {

template <class To, class... From>
void add_casts_to(PointwiseTable& table, Types<From...>) {
  PointwiseFunction& f = table[type_name<scalar::Cast<To>>()];
  f.inputs = 1;
  ((f.template of<From>() =
        pointwise_kernel_of<scalar::Cast<typename CastTypes<To, From>::to>, typename CastTypes<To, From>::to,
                            typename CastTypes<To, From>::from>()),
   ...);
}
template <class... To>
void add_all_casts(PointwiseTable& table, Types<To...> types) {
  (add_casts_to<To>(table, types), ...);
}

}  // namespace

void add_casts(PointwiseTable& table) { add_all_casts(table, StoredTypes()); }

}  // namespace espalier::cu
