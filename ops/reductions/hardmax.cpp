#include "espalier/ops/functions/hardmax.h"

#include <fmt/format.h>

#include "espalier/core/node.h"
#include "espalier/ops/last_axis.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

Variable hardmax(const Operand& x, int64_t axis) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& v = x.defined("hardmax");
    check_dtype<Reals>({v.dtype(), v.shape()}, "hardmax");
    const int64_t a = axis_of(v, axis, "hardmax", x.where());
    if (v.shape()[a] == 0)
      throw ShapeError(fmt::format("hardmax: axis {} of shape {} has no element", axis, v.shape().str()));
    const Variable last = stop_gradient(exchange_last_axis(v, a)), position = argmax(last, -1);
    return exchange_last_axis(put_like(cast(ones_like(position), v.dtype()), position, last, "hardmax"), a);
  });
}

}  // namespace espalier
