#include "espalier/ops/strided_launch.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "espalier/core/cpu/strided_loop.h"

namespace espalier::cu {

namespace {

using Steps = std::array<int64_t, max_operands>;

/// A region of the output with the matching regions of the inputs, from the outermost axis on.
struct Region {
  Dims sizes;
  SmallVector<Steps, 4> steps;
  std::array<char*, max_operands> data{};
};

using ElementSizes = std::array<int64_t, max_operands>;

/// The slice `begin` to `end` of an axis.
Region part(const Region& whole, size_t axis, int64_t begin, int64_t end, const ElementSizes& bytes) {
  Region result = whole;
  for (size_t k = 0; k < max_operands; ++k)
    if (result.data[k]) result.data[k] += begin * whole.steps[axis][k] * bytes[k];
  result.sizes[axis] = end - begin;
  if (end - begin == 1 && result.sizes.size() > 1) {
    result.sizes.erase(axis);
    result.steps.erase(axis);
  }
  return result;
}

/// The widest axis of an operand that spans more than `reach` elements; the number of axes if none does.
size_t too_far(const Region& region, int64_t reach) {
  const size_t axes = region.sizes.size();
  for (size_t k = 0; k < max_operands; ++k) {
    int64_t span = 0, widest = -1;
    size_t axis = 0;
    for (size_t a = 0; a < axes; ++a) {
      const int64_t extent = (region.sizes[a] - 1) * std::abs(region.steps[a][k]);
      span += extent;
      if (extent > widest) widest = extent, axis = a;
    }
    if (span > reach) return axis;
  }
  return axes;
}

/// How the units of operand k are read or written; they begin at multiples of the steps from `data`.
Access access(const Region& region, size_t k, int64_t unit, int64_t element) {
  const int64_t step = region.steps.back()[k];
  if (step == 0) return Access::same;
  if (step != 1) return Access::each;
  uint64_t places = reinterpret_cast<uintptr_t>(region.data[k]) | static_cast<uint64_t>(unit * element);
  for (size_t a = 0; a + 1 < region.steps.size(); ++a)
    places |= static_cast<uint64_t>(std::abs(region.steps[a][k]) * element);
  if (places % static_cast<uint64_t>(unit * element) == 0) return Access::whole;
  return element < 4 && unit * element > 4 && places % 4 == 0 ? Access::words : Access::each;
}

StridedLaunch walk(const Region& region, uint32_t unit, const ElementSizes& bytes) {
  StridedLaunch result{};
  const int64_t row = region.sizes.back();
  if (region.sizes.size() > 1 && row % unit != 0) unit = 1;
  int64_t elements = 1, units = 1;
  for (size_t a = region.sizes.size(); a-- > 0;) {
    const bool inner = a + 1 == region.sizes.size();
    const int64_t size = inner ? (row + unit - 1) / unit : region.sizes[a];
    elements *= region.sizes[a];
    units *= size;
    if (size == 1 && region.sizes.size() > 1) continue;
    WalkAxis& axis = result.axis[result.axes++];
    axis.size = FastDivide(static_cast<uint32_t>(size));
    for (size_t k = 0; k < max_operands; ++k)
      axis.step[k] = static_cast<int32_t>(size == 1 ? 0 : region.steps[a][k] * (inner ? unit : 1));
  }
  result.unit = unit;
  result.units = static_cast<uint32_t>(units);
  result.elements = static_cast<uint32_t>(elements);
  for (size_t k = 0; k < max_operands; ++k) {
    result.data[k] = region.data[k];
    if (!region.data[k]) continue;
    result.element_step[k] = unit == 1 || row == 1 ? 0 : static_cast<int32_t>(region.steps.back()[k]);
    result.access[k] = access(region, k, unit, bytes[k]);
  }
  return result;
}

void append_launches(SmallVector<StridedLaunch, 1>& result, const Region& region, uint32_t unit,
                     int64_t reach, const ElementSizes& bytes) {
  if (region.sizes.size() > max_axes) {
    for (int64_t i = 0; i < region.sizes[0]; ++i)
      append_launches(result, part(region, 0, i, i + 1, bytes), unit, reach, bytes);
    return;
  }
  const size_t axis = too_far(region, reach);
  if (axis == region.sizes.size()) {
    result.push_back(walk(region, unit, bytes));
    return;
  }
  // Split at a multiple of 64, so that aligned units stay aligned.
  const int64_t size = region.sizes[axis], half = size / 2;
  const int64_t middle = half >= 64 ? half / 64 * 64 : half;
  append_launches(result, part(region, axis, 0, middle, bytes), unit, reach, bytes);
  append_launches(result, part(region, axis, middle, size, bytes), unit, reach, bytes);
}

}  // namespace

SmallVector<StridedLaunch, 1> strided_launches(const Tensor& output, std::span<const Tensor* const> inputs,
                                               uint32_t unit, int64_t reach) {
  SmallVector<StridedLaunch, 1> result;
  const Shape& shape = output.shape();
  std::array<Layout, max_operands> layouts;
  const Dims none(shape.rank(), 0);
  std::array<const Dims*, max_operands> strides{&output.strides(), &none, &none, &none};
  for (size_t k = 0; k < inputs.size(); ++k) {
    const bool same = inputs[k]->shape() == shape;
    if (!same) layouts[k] = broadcast_layout(inputs[k]->layout(), shape);
    strides[k + 1] = same ? &inputs[k]->strides() : &layouts[k].strides;
  }
  const StridedLoop<max_operands> loop(shape, strides);
  if (loop.empty()) return result;

  Region region;
  ElementSizes bytes{};
  for (size_t k = 0; k <= inputs.size(); ++k) {
    const Tensor& tensor = k == 0 ? output : *inputs[k - 1];
    region.data[k] = static_cast<char*>(tensor.address());
    bytes[k] = static_cast<int64_t>(size_of(tensor.dtype()));
  }
  for (size_t a = 0; a < loop.axes(); ++a) {
    region.sizes.push_back(loop.size(a));
    region.steps.push_back(loop.step(a));
  }
  append_launches(result, region, unit, reach, bytes);
  return result;
}

}  // namespace espalier::cu
