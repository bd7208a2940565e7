#include "espalier/ops/functions/grid_sample.h"

#include <fmt/format.h>

#include <vector>

#include "espalier/core/countable.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/elementwise/bounds.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/functions/rounding.h"
#include "espalier/ops/functions/scatter.h"
#include "espalier/ops/images/cubic_weights.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/views/axis_views.h"
#include "espalier/ops/widened.h"

namespace espalier {

namespace {

/// The coordinate of the centre of element i along an axis.
double centre_of(int64_t i, int64_t size, bool align_corners) {
  const auto n = static_cast<double>(size), at = static_cast<double>(i);
  if (!align_corners) return (2 * at + 1) / n - 1;
  return size == 1 ? 0 : 2 * at / (n - 1) - 1;
}

/// The places of an image with these sizes as rows (x, y, …, 1).
Tensor homogeneous_places(const Shape& sizes, bool align_corners) {
  const auto k = static_cast<int64_t>(sizes.rank());
  Tensor places({sizes.elements(), k + 1}, float64);
  auto* to = static_cast<double*>(places.address());
  for (int64_t place = 0; place < places.shape()[0]; ++place, to += k + 1) {
    int64_t left = place;
    for (int64_t j = 0; j < k; ++j) {  // from the innermost axis on
      const int64_t size = sizes[-1 - j];
      to[j] = centre_of(left % size, size, align_corners);
      left /= size;
    }
    to[k] = 1;
  }
  return places;
}

/// Positions brought into [0, size − 1], or [−1/2, size − 1/2], by mirrors at these bounds.
Variable reflected(const Variable& position, double low, double high) {
  const double span = high - low;
  if (span <= 0) return zeros_like(position);
  const Variable offset = position - low;
  const Variable distance = where(less(offset, 0.0), negative(offset), offset);
  const Variable flips = stop_gradient(floor(distance / span));
  const Variable rest = distance - flips * span;
  const Variable is_even = equal(remainder(flips, 2.0), 0.0);
  return where(is_even, rest + low, high - rest);
}

/// An element that a point reads along one axis: its index, and how much it counts (undefined: wholly).
struct Tap {
  Variable index, weight;
};

/// Reads one axis of images.
class AxisSampler {
 public:
  AxisSampler(int64_t size, const GridSampleOptions& options) : size_(size), options_(options) {}

  /// The elements that the points with these coordinates [n, points] read.
  std::vector<Tap> taps(const Variable& coordinate) const {
    if (options_.mode == SampleMode::cubic) return cubic_taps(position_of(coordinate));
    const Variable at = padded(position_of(coordinate));
    if (options_.mode == SampleMode::nearest) return {tap(stop_gradient(round(at)), {}, at)};
    const Variable low = stop_gradient(floor(at)), share = at - low;
    return {tap(low, 1.0 - share, at), tap(low + 1.0, share, at)};
  }

 private:
  /// Each of the elements around a position is one of the image, or of what is outside.
  std::vector<Tap> cubic_taps(const Variable& at) const {
    const Variable low = stop_gradient(floor(at));
    std::vector<Tap> taps;
    double away = -1;
    for (const Variable& weight : cubic_weights<Variable>(at - low))
      taps.push_back(tap(padded(low + away++), weight, at));
    return taps;
  }
  double last() const { return static_cast<double>(size_ - 1); }
  Variable position_of(const Variable& coordinate) const {
    if (options_.align_corners) return (coordinate + 1.0) * (last() / 2);
    return (coordinate + 1.0) * (static_cast<double>(size_) / 2) - 0.5;
  }
  Variable padded(const Variable& position) const {
    if (options_.padding == SamplePadding::zeros) return position;
    if (options_.padding == SamplePadding::border) return saturate(position, 0, last());
    const double edge = options_.align_corners ? 0 : 0.5;
    return saturate(reflected(position, -edge, last() + edge), 0, last());
  }
  Tap tap(const Variable& place, const Variable& weight, const Variable& like) const {
    const Variable index = cast(clamp(place, 0.0, last()), int64);
    if (options_.padding != SamplePadding::zeros) return {index, weight};
    const Variable inside = logical_and(greater_equal(place, 0.0), less_equal(place, last()));
    return {index, where(inside, weight.defined() ? weight : ones_like(like), zeros_like(like))};
  }

  int64_t size_;
  GridSampleOptions options_;
};

Variable product_of_weights(const Variable& a, const Variable& b) {
  if (!a.defined()) return b;
  return b.defined() ? a * b : a;
}

void check_grid_shapes(const Shape& x, const Shape& grid) {
  const auto k = static_cast<int64_t>(grid.rank()) - 2;
  if (k < 1 || x.rank() != grid.rank() || grid[-1] != k || grid[0] != x[0])
    throw ShapeError(
        fmt::format("grid_sample: images of shape {} do not go with a grid of shape {}: [n, c, sizes…] takes "
                    "[n, outputs…, k] with as many of both as k says",
                    x.str(), grid.str()));
  for (int64_t axis = 2; axis < k + 2; ++axis)
    if (x[axis] == 0)
      throw ShapeError(fmt::format("grid_sample: images of shape {} have no elements to read", x.str()));
}

}  // namespace

Variable affine_grid(const Operand& theta, const Shape& sizes, bool align_corners) {
  const CallScope scope(theta.where());
  return located(theta.where(), [&] {
    const Variable& given = theta.defined("affine_grid");
    check_dtype<Reals>({given.dtype(), given.shape()}, "affine_grid");
    const auto k = static_cast<int64_t>(sizes.rank());
    if (k == 0 || given.rank() != 3 || given.shape()[1] != k || given.shape()[2] != k + 1)
      throw ShapeError(fmt::format("affine_grid: for {} axes, of sizes {}, theta is [n, {}, {}], not {}", k,
                                   sizes.str(), k, k + 1, given.shape().str()));
    for (const int64_t size : sizes)
      if (size < 0) throw ShapeError(fmt::format("affine_grid: there is no grid of sizes {}", sizes.str()));
    check_countable(sizes, "affine_grid");
    const Variable maps = widened(given);
    const Tensor places = homogeneous_places(sizes, align_corners).to(maps.dtype()).to(maps.device());
    return rounded(unflatten(matmul(places, transpose(maps)), 1, sizes), given.dtype());
  });
}

Variable grid_sample(const Operand& x, const Operand& grid, const GridSampleOptions& options) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable &given = x.defined("grid_sample"), &points = grid.defined("grid_sample");
    check_dtype<Reals>({given.dtype(), given.shape()}, "grid_sample");
    check_same_dtype({given.dtype(), given.shape()}, {points.dtype(), points.shape()}, "grid_sample");
    check_grid_shapes(given.shape(), points.shape());
    const auto k = static_cast<int64_t>(points.rank()) - 2;
    const Variable rows = merge_axes(widened(points), {1, k, 1});  // [n, points, k]
    // Every combination of an element along each axis, as row-major numbers: the outermost axis first.
    std::vector<Tap> taps{{}};
    for (int64_t axis = 0; axis < k; ++axis) {
      const int64_t size = given.shape()[2 + axis], component = k - 1 - axis;
      const Variable coordinate = squeeze(slice(rows, -1, component, component + 1), -1);
      std::vector<Tap> longer;
      const std::vector<Tap> along = AxisSampler(size, options).taps(coordinate);
      for (const Tap& outer : taps)
        for (const Tap& inner : along)
          longer.push_back({outer.index.defined() ? outer.index * size + inner.index : inner.index,
                            product_of_weights(outer.weight, inner.weight)});
      taps = std::move(longer);
    }
    const Variable elements = merge_axes(with_fixed_sizes(widened(given), 2), {1, 1, k});  // [n, c, elements]
    Variable result;
    for (const Tap& tap : taps) {
      Variable part = take_along_axis(elements, unsqueeze(tap.index, 1), -1);
      if (tap.weight.defined()) part = part * unsqueeze(tap.weight, 1);
      result = result.defined() ? result + part : part;
    }
    const Shape outputs(Dims(points.shape().begin() + 1, points.shape().end() - 1));
    return rounded(unflatten(result, 2, outputs), given.dtype());
  });
}

}  // namespace espalier
