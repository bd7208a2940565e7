#include "espalier/ops/functions/as_strided.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace {

/// The first and the last element that is read; false if 64 bits cannot count them.
bool strided_reach(const Shape& shape, const std::vector<int64_t>& strides, int64_t& first, int64_t& last) {
  for (size_t axis = 0; axis < shape.rank(); ++axis) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(strides[axis], shape.dims()[axis] - 1, &reach)) return false;
    int64_t& end = reach < 0 ? first : last;
    if (__builtin_add_overflow(end, reach, &end)) return false;
  }
  return true;
}

/// The row-major numbers of the elements that are read.
Tensor strided_numbers(const Shape& shape, const std::vector<int64_t>& strides, int64_t offset) {
  Tensor numbers(shape, int64);
  auto* to = static_cast<int64_t*>(numbers.address());
  Dims index(shape.rank(), 0);
  int64_t at = offset;
  for (int64_t i = 0, n = shape.elements(); i < n; ++i) {
    *to++ = at;
    for (size_t axis = shape.rank(); axis-- > 0;) {
      at += strides[axis];
      if (++index[axis] < shape.dims()[axis]) break;
      at -= strides[axis] * index[axis];
      index[axis] = 0;
    }
  }
  return numbers;
}

}  // namespace

Variable as_strided(const Operand& x, const Shape& shape, const std::vector<int64_t>& strides,
                    int64_t offset) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& from = x.defined("as_strided");
    if (strides.size() != shape.rank())
      throw ShapeError(fmt::format("as_strided: {} strides for the shape {}", strides.size(), shape.str()));
    if (shape.elements() == 0) return gather(flatten(from), zeros(shape, int64).to(from.device()));
    int64_t first = offset, last = offset;
    if (!strided_reach(shape, strides, first, last) || first < 0 || last >= from.shape().elements())
      throw IndexError(fmt::format(
          "as_strided: the shape {} with strides {} from element {} on reads outside of the {} elements of "
          "{}",
          shape.str(), Shape(strides).str(), offset, from.shape().elements(), from.shape().str()));
    return gather(flatten(from), strided_numbers(shape, strides, offset).to(from.device()));
  });
}

}  // namespace espalier
