// Quantized values: integers with a scale and a zero point.
#include <fmt/format.h>

#include <algorithm>

#include "espalier/nn/onnx/tensors.h"
#include "espalier/nn/onnx/windows.h"

namespace espalier::onnx {

namespace {

struct Range {
  double low, high;
};
Range range_of(const FileNode& node, DType dtype) {
  switch (dtype) {
    case DType::int8: return {-128, 127};
    case DType::uint8: return {0, 255};
    case DType::int16: return {-32768, 32767};
    case DType::int32: return {-2147483648.0, 2147483647.0};
    default: node.refuse(fmt::format("values of {} are not quantized", name(dtype)));
  }
}

/// A scale or zero point in the shape that meets `x`: of all, of each slice of the axis, or of each block of
/// it.
Variable spread(FileNode& node, const Variable& settings, const Variable& x, int64_t axis) {
  const int64_t block = node.integer("block_size", 0);
  if (settings.shape().elements() == 1 && (settings.rank() <= 1) && (x.rank() == 0 || block == 0))
    return reshape(settings, {});
  const int64_t at = axis_of(node, x, axis);
  if (block > 0) {
    const Variable repeated = repeat_interleave(settings, block, at);
    return slice(repeated, at, 0, x.shape()[at]);
  }
  std::vector<int64_t> sizes(x.rank(), 1);
  sizes[static_cast<size_t>(at)] = -1;
  return reshape(settings, Shape(sizes));
}

/// round(x / scale) + zero point, within the range of the type.
Variable quantized(const FileNode& node, const Variable& x, const Variable& scale, const Variable& zero,
                   DType to) {
  const Range range = range_of(node, to);
  const Variable whole = round(x / cast(scale, x.dtype()));
  return cast(
      clamp(cast(zero.defined() ? whole + cast(zero, x.dtype()) : whole, float64), range.low, range.high),
      to);
}

Variable dequantized(const Variable& x, const Variable& scale, const Variable& zero) {
  const Variable wide = computable(x);
  const Variable whole = zero.defined() ? wide - computable(zero) : wide;
  return cast(whole, scale.dtype()) * scale;
}

Outputs quantize(FileNode& node) {
  const int64_t axis = node.integer("axis", 1);
  node.ignore("saturate");
  node.ignore("precision");
  DType to = node.has(2) ? node[2].dtype() : uint8;
  if (const int64_t type = node.integer("output_dtype", 0))
    to = need_dtype(static_cast<int32_t>(type), node.label());
  const Variable x = is_half(node[0].dtype()) || !is_real(node[0].dtype()) ? cast(node[0], float32) : node[0];
  const Variable zero = node.has(2) ? spread(node, computable(node[2]), x, axis) : Variable();
  return {quantized(node, x, spread(node, node[1], x, axis), zero, to)};
}

Outputs dequantize(FileNode& node) {
  const int64_t axis = node.integer("axis", 1);
  const Variable& x = node[0];
  if (const int64_t type = node.integer("output_dtype", 0))
    if (dtype_of_file(static_cast<int32_t>(type)) != node[1].dtype())
      node.refuse("its result has another type than its scale");
  const Variable zero = node.has(2) ? spread(node, computable(node[2]), x, axis) : Variable();
  return {dequantized(x, spread(node, node[1], x, axis), zero)};
}

/// To uint8, with the scale and the zero point of these values; 0 has a number of its own.
Outputs quantize_dynamically(FileNode& node) {
  const Variable& x = node[0];
  const Variable low = clamp_max(min(x), 0), high = clamp_min(max(x), 0);
  const Variable scale = (high - low) / 255;
  const Variable zero = clamp(round(-low / scale), 0, 255);
  return {quantized(node, x, scale, zero, uint8), scale, cast(zero, uint8)};
}

/// Zero points of the rows of a left operand, or of the columns of a right one.
Variable less_zero(const FileNode& node, size_t operand, size_t zero, bool rows) {
  const Variable x = cast(node[operand], float64);
  if (!node.has(zero)) return x;
  const Variable offset = cast(node[zero], float64);
  return x - (rows && offset.rank() == 1 && offset.shape()[0] > 1 ? unsqueeze(offset, 1) : offset);
}

Outputs product(FileNode& node) {
  return {cast(matmul(less_zero(node, 0, 2, true), less_zero(node, 1, 3, false)), int32)};
}

/// Scales and zero points are a number, or one for each row of the left operand, or column of the right one.
Outputs quantized_product(FileNode& node) {
  const Variable y = matmul(less_zero(node, 0, 2, true), less_zero(node, 3, 5, false));
  const auto scale_of = [&](size_t i, bool rows) {
    const Variable scale = cast(node[i], float64);
    return rows && scale.rank() == 1 && scale.shape()[0] > 1 ? unsqueeze(scale, 1) : scale;
  };
  const Variable scale = scale_of(1, true) * scale_of(4, false) / scale_of(6, true);
  const Range range = range_of(node, node[7].dtype());
  return {cast(clamp(round(y * scale) + cast(node[7], float64), range.low, range.high), node[7].dtype())};
}

Outputs quantized_convolution(FileNode& node) {
  const Variable& weights = node[3];
  if (weights.rank() < 3) node.fail("its weights have no axes to slide along");
  const Windows windows = windows_of(node, node[0], {weights.shape().begin() + 2, weights.shape().end()});
  const auto column = [&](size_t i, size_t axis) {
    std::vector<int64_t> sizes(weights.rank(), 1);
    sizes[axis] = -1;
    return reshape(cast(node[i], float64), Shape(sizes));
  };
  const Variable x = cast(node[0], float64) - cast(reshape(node[2], {}), float64);
  const Variable kernels = cast(weights, float64) - column(5, 0);
  Variable y = conv(x, kernels,
                    {.stride = windows.stride,
                     .padding = windows.padding,
                     .dilation = windows.dilation,
                     .groups = node.integer("group", 1)});
  if (node.has(8)) y = y + column(8, 1);
  const Variable scale =
      cast(reshape(node[1], {}), float64) * column(4, 1) / cast(reshape(node[6], {}), float64);
  const Range range = range_of(node, node[7].dtype());
  return {cast(clamp(round(y * scale) + cast(reshape(node[7], {}), float64), range.low, range.high),
               node[7].dtype())};
}

}  // namespace

void add_quantized(Registry& all) {
  all.add("QuantizeLinear", 10, quantize);
  all.add("DequantizeLinear", 10, dequantize);
  all.add("DynamicQuantizeLinear", 11, quantize_dynamically);
  all.add("MatMulInteger", 10, product);
  all.add("QLinearMatMul", 10, quantized_product);
  all.add("QLinearConv", 10, quantized_convolution);
}

}  // namespace espalier::onnx
