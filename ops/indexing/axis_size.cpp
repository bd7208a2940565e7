// What depends on the number of entries along an axis.
#include "espalier/core/node.h"
#include "espalier/ops/indexing/positions.h"
#include "espalier/ops/ops.h"

namespace espalier {

Variable axis_size(const Operand& x, int64_t axis) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& v = x.defined("axis_size");
    const size_t along = resolve_axis(axis, v.rank(), "axis_size");
    const DType dtype = is_real(v.dtype()) ? v.dtype() : DType::int64;
    if (!v.node()->lazy) return Variable(full({}, v.shape().dims()[along], dtype).to(v.device()));
    // A sum of ones, which parts of a batch can share. Elements of x are not read.
    Dims others;
    for (size_t i = 0; i < v.rank(); ++i)
      if (i != along) others.push_back(static_cast<int64_t>(i));
    const Variable ones = ones_like(cast(v, dtype));
    return sum(others.empty() ? ones : ones_like(sum(ones, Axes(others))));
  });
}

Variable arange_like(const Operand& x, int64_t axis, DType dtype) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable places = positions_like(x.defined("arange_like"), axis);
    return dtype == int64 ? places : cast(places, dtype);
  });
}

}  // namespace espalier
