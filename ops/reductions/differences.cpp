#include "espalier/ops/functions/differences.h"

#include <fmt/format.h>

#include <string_view>

#include "espalier/core/error.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

namespace {

/// All slices along an axis but the first, and all but the last. Nothing for an empty axis.
struct Neighbours {
  Variable later, earlier;

  Neighbours(const Variable& x, int64_t axis) {
    if (x.shape()[axis] == 0) {
      later = earlier = x;
      return;
    }
    later = slice(x, axis, 1, open_end);
    earlier = slice(x, axis, 0, -1);
  }
};

/// `y` of `function`, which integrates along `axis`.
const Variable& samples(const Operand& y, int64_t axis, std::string_view function) {
  const Variable& v = y.defined(function);
  check_dtype<Reals>({v.dtype(), v.shape()}, function);
  (void)resolve_axis(axis, v.rank(), function);
  return v;
}

}  // namespace

Variable diff(const Operand& x, int64_t n, int64_t axis) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    Variable v = x.defined("diff");
    (void)resolve_axis(axis, v.rank(), "diff");
    if (n < 0) throw Error(fmt::format("diff: n is {}", n));
    for (int64_t i = 0; i < n && v.shape()[axis] > 0; ++i) {
      const Neighbours both(v, axis);
      v = v.dtype() == boolean ? not_equal(both.later, both.earlier) : both.later - both.earlier;
    }
    return v;
  });
}

Variable trapezoid(const Operand& y, double dx, int64_t axis) {
  const CallScope scope(y.where());
  return located(y.where(), [&] {
    const Neighbours both(samples(y, axis, "trapezoid"), axis);
    return sum(both.later + both.earlier, axis) * (dx / 2);
  });
}
Variable trapezoid(const Operand& y, const Operand& x, int64_t axis) {
  const CallScope scope(y.where());
  return located(y.where(), [&] {
    const Variable& v = samples(y, axis, "trapezoid");
    const Variable& given = x.defined("trapezoid");
    const size_t along = resolve_axis(axis, v.rank(), "trapezoid");
    const int64_t from_end = static_cast<int64_t>(along) - static_cast<int64_t>(v.rank());
    Variable places = given;
    if (given.rank() == 1)  // along the axis
      for (int64_t i = from_end; i < -1; ++i) places = unsqueeze(places, -1);
    if (places.rank() > v.rank() || static_cast<int64_t>(places.rank()) < -from_end ||
        places.shape()[from_end] != v.shape()[from_end])
      throw ShapeError(fmt::format("trapezoid: samples of shape {} at {} places along axis {}",
                                   v.shape().str(), given.shape().str(), axis));
    const Neighbours both(v, from_end), at(places, from_end);
    return sum((both.later + both.earlier) * (at.later - at.earlier), from_end) * 0.5;
  });
}

}  // namespace espalier
