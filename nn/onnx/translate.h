// What translations of operators share.
#pragma once
#include <cstdint>

#include "espalier/core/error.h"
#include "espalier/nn/onnx/registry.h"
#include "espalier/ops/ops.h"

namespace espalier::onnx {

/// `x`, or as int32 what Espalier only stores: int8, uint8, int16.
Variable computable(const Variable& x);
/// f of computable operands, in the dtype of the first: integers lose the bits that it does not have.
template <class F, class... X>
Variable computed(F&& f, const Variable& first, const X&... others) {
  if (!is_small_integer(first.dtype())) return f(first, others...);
  return cast(f(computable(first), computable(others)...), first.dtype());
}
/// f(x), computed in float32 if `x` is a 16-bit real: for what is made of several operations.
template <class F>
Variable in_float32(const Variable& x, F&& f) {
  return is_half(x.dtype()) ? cast(f(cast(x, float32)), x.dtype()) : f(x);
}
/// Input 1 of an operator of two operands. Before opset 7 the attribute `axis` says to which axis of input 0
/// its first one belongs; without it, axes are matched from the last one on, as today.
Variable second_operand(const FileNode& node);
/// As an integer number that an operator takes for a count, or an axis.
inline int64_t rank_of(const Variable& x) { return static_cast<int64_t>(x.rank()); }
/// `axis` counted from the front. Throws FileError.
int64_t axis_of(const FileNode& node, const Variable& x, int64_t axis);
/// Throws FileError for lengths that no axis has, such as those of pads: sums of them have 64 bits.
void check_lengths(const FileNode& node, const std::vector<int64_t>& lengths);
/// Axes 0 to `rank` - 1.
Dims axes_up_to(int64_t rank);
/// shaped_as(sizes), where the numbers among these alone are not too many elements of a constant.
Variable shaped_like(const FileNode& node, const std::vector<Size>& sizes, DType dtype);
/// 0-dimensional, of that dtype.
Variable scalar(double value, DType dtype);

}  // namespace espalier::onnx
