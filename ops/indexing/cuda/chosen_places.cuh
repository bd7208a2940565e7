// Where the elements lie that indices choose along an axis (ops/indexing/chosen.h), for kernels.
#pragma once
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/index_list.h"
#include "espalier/ops/indexing/chosen.h"

namespace espalier::cu {

struct ChosenPlaces {
  IndexList list;
  StridedWalk steps;  ///< from each chosen element to its index
  int64_t count, size, inner;
  bool along;

  struct Place {
    int64_t element;  ///< in the tensor, row-major
    int64_t line;     ///< what equal indices share: the element, or for whole slices the index
    int64_t number;   ///< of the index along the axis
  };
#if defined(__CUDACC__) || defined(ESPALIER_EMULATED_CUDA)
  /// The place of chosen element i.
  __device__ __forceinline__ Place place(int64_t i) const {
    const int64_t row = divide(i, inner), outer = divide(row, count);
    const int64_t index = list.at(steps.offset(i), size, true);
    const int64_t element = (outer * size + index) * inner + (i - row * inner);
    return {element, along ? element : index, row - outer * count};
  }
#endif
};

/// `chosen` is not empty.
inline ChosenPlaces chosen_places(const KernelCall& call, const Chosen& form, const Shape& x,
                                  const Tensor& indices, const Shape& chosen, std::string_view op) {
  const AxisBlocks b(x, resolve_axis(form.axis, x.rank(), op));
  return {{indices.address(), indices.dtype() == DType::int64, value_report(call, op)},
          StridedWalk(collapsed(form.indices_for(indices.layout(), chosen))),
          chosen.elements() / b.lines(),
          b.size,
          b.inner,
          form.along};
}

}  // namespace espalier::cu
