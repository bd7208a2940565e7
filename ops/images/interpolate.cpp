#include "espalier/ops/functions/interpolate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "espalier/core/countable.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/open_sizes.h"
#include "espalier/ops/images/cubic_weights.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/widened.h"

namespace espalier {

namespace {

/// How an axis gets another size: output i is at the position i · step + shift of the input.
struct Resizing {
  int64_t in, out;
  double ratio;  ///< the distance of two outputs, if corners are not aligned
  bool by_size;  ///< the ratio is in / out
};

/// The elements that each output reads, and how much they count: [out] for each tap. Their memory is that of
/// tensors, since a size may be as large as the user says.
struct WeightedTaps {
  std::vector<Variable> indices;
  std::vector<Variable> weights;  ///< none: all count 1
};

WeightedTaps nearest_taps(const Resizing& r, bool exact) {
  Tensor indices({r.out}, int64);
  auto* to = indices.data<int64_t>();
  for (int64_t i = 0; i < r.out; ++i) {
    const double place = (static_cast<double>(i) + (exact ? 0.5 : 0.0)) * r.ratio;
    // With a size, in whole numbers: no rounding moves a place below the element it is at.
    const bool whole = r.by_size && !exact && i < std::numeric_limits<int64_t>::max() / r.in;
    const int64_t at = whole ? i * r.in / r.out : static_cast<int64_t>(std::floor(place));
    to[i] = std::clamp<int64_t>(at, 0, r.in - 1);
  }
  return {{Variable(indices)}, {}};
}

WeightedTaps weighted_taps(const Resizing& r, bool cubic, bool align_corners) {
  const size_t count = cubic ? 4 : 2;
  WeightedTaps result;
  std::array<int64_t*, 4> indices{};
  std::array<double*, 4> weights{};
  for (size_t k = 0; k < count; ++k) {
    Tensor of_tap({r.out}, int64), weight_of_tap({r.out}, float64);
    indices[k] = of_tap.data<int64_t>();
    weights[k] = weight_of_tap.data<double>();
    result.indices.emplace_back(of_tap);
    result.weights.emplace_back(weight_of_tap);
  }
  for (int64_t i = 0; i < r.out; ++i) {
    const auto at = static_cast<double>(i);
    double place = (at + 0.5) * r.ratio - 0.5;
    if (align_corners)
      place = r.out > 1 ? at * static_cast<double>(r.in - 1) / static_cast<double>(r.out - 1) : 0;
    if (!cubic) place = std::clamp(place, 0.0, static_cast<double>(r.in - 1));
    const double low = std::floor(place), t = place - low;
    const auto first = static_cast<int64_t>(low) - (cubic ? 1 : 0);
    const std::array<double, 4> cubics = cubic_weights(t), lines{1 - t, t};
    for (size_t k = 0; k < count; ++k) {
      indices[k][i] = std::clamp<int64_t>(first + static_cast<int64_t>(k), 0, r.in - 1);
      weights[k][i] = cubic ? cubics[k] : lines[k];
    }
  }
  return result;
}

/// 0, 1, … in float64, as many as an open axis of n elements has after it is scaled: ⌊n · scale⌋.
Variable scaled_positions(const Variable& x, int64_t axis, double scale) {
  const Variable places = arange_like(x, axis, float64);
  const double parts = std::round(1 / scale);
  if (scale >= 1 && scale == std::floor(scale)) {
    const auto times = static_cast<int64_t>(scale);
    const Variable within = Variable(arange(times, float64).to(x.device()));
    return reshape(unsqueeze(places, 1) * scale + within, {-1});
  }
  if (scale < 1 && parts < 0x1p53 && std::abs(scale * parts - 1) < 1e-15) {
    const auto step = static_cast<int64_t>(parts);
    return arange_like(slice(places, 0, step - 1, open_end, step), 0, float64);
  }
  throw UnsupportedError(
      fmt::format("interpolate: axis {} has an open size, which can be scaled by whole numbers and their "
                  "reciprocals, not by {}; or give the size of the result",
                  axis, scale));
}

/// The taps of an axis whose size comes with each batch.
WeightedTaps open_taps(const Variable& x, int64_t axis, const Resizing& r, const InterpolateOptions& o) {
  const Variable in = axis_size(cast(x, float64), axis);
  const Variable at =
      r.by_size ? Variable(arange(r.out, float64).to(x.device())) : scaled_positions(x, axis, 1 / r.ratio);
  const Variable out = axis_size(at, 0);
  const auto clamped = [&](const Variable& place) { return minimum(maximum(place, 0.0), in - 1.0); };
  const auto index = [&](const Variable& place) { return cast(clamped(place), int64); };
  const auto scaled = [&](const Variable& place) {
    return r.by_size ? place * in / static_cast<double>(r.out) : place * r.ratio;
  };
  if (o.mode == Interpolation::nearest) return {{index(floor(scaled(at)))}, {}};
  if (o.mode == Interpolation::nearest_exact) return {{index(floor(scaled(at + 0.5)))}, {}};
  const bool cubic = o.mode == Interpolation::cubic;
  Variable place = o.align_corners ? at * ((in - 1.0) / maximum(out - 1.0, 1.0)) : scaled(at + 0.5) - 0.5;
  if (!cubic) place = clamped(place);
  const Variable low = floor(place), t = place - low;
  if (!cubic) return {{index(low), index(low + 1.0)}, {1.0 - t, t}};
  const std::array<Variable, 4> weights = cubic_weights(t);
  return {{index(low - 1.0), index(low), index(low + 1.0), index(low + 2.0)},
          {weights.begin(), weights.end()}};
}

Variable resized(const Variable& x, int64_t axis, const WeightedTaps& taps) {
  Dims along(static_cast<size_t>(static_cast<int64_t>(x.rank()) - axis), 1);
  along[0] = -1;
  const auto weight = [&](const Variable& w) {
    return w.node()->is_leaf() ? Variable(w.value().reshape(Shape(along)).to(x.dtype()).to(x.device()))
                               : cast(reshape(w, Shape(along)), x.dtype());
  };
  Variable result;
  for (size_t k = 0; k < taps.indices.size(); ++k) {
    const Variable& at = taps.indices[k];
    Variable part = gather(x, at.node()->is_leaf() ? Variable(at.value().to(x.device())) : at, axis);
    if (!taps.weights.empty()) part = part * weight(taps.weights[k]);
    result = result.defined() ? result + part : part;
  }
  return result;
}

Resizing resizing_of(const Shape& shape, size_t axis, const InterpolateOptions& o) {
  const int64_t in = shape.dims()[axis + 2];
  const auto chosen = [&](const auto& list) { return list[list.size() == 1 ? 0 : axis]; };
  if (!o.size.empty()) {
    const int64_t out = chosen(o.size);
    if (out < 1) throw Error(fmt::format("interpolate: the size of axis {} is {}", axis + 2, out));
    return {in, out, static_cast<double>(in) / static_cast<double>(out), true};
  }
  const double scale = chosen(o.scale), size = std::floor(static_cast<double>(in) * scale);
  if (!(scale > 0 && scale < std::numeric_limits<double>::infinity()))
    throw Error(fmt::format("interpolate: the scale of axis {} is {}", axis + 2, scale));
  if (!(size >= 1 && size < 0x1p62))
    throw ShapeError(fmt::format("interpolate: axis {} of shape {}, scaled by {}, has a size of {}", axis + 2,
                                 shape.str(), scale, size));
  return {in, static_cast<int64_t>(size), 1 / scale, false};
}

}  // namespace

Variable interpolate(const Operand& x, const InterpolateOptions& o) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& given = x.defined("interpolate");
    const Shape& shape = given.shape();
    check_dtype<Reals>({given.dtype(), shape}, "interpolate");
    if (shape.rank() < 3)
      throw ShapeError(fmt::format("interpolate: takes [n, channels, sizes…], not {}", shape.str()));
    if (o.size.empty() == o.scale.empty())
      throw Error("interpolate: takes either the sizes of the result or the scales of the axes");
    const size_t axes = shape.rank() - 2, numbers = o.size.empty() ? o.scale.size() : o.size.size();
    if (numbers != 1 && numbers != axes)
      throw ShapeError(fmt::format("interpolate: {} numbers for {} axes of {}", numbers, axes, shape.str()));
    const bool nearest = o.mode == Interpolation::nearest || o.mode == Interpolation::nearest_exact;
    if (nearest && o.align_corners)
      throw Error("interpolate: corners are aligned between elements, and the nearest one is asked for");
    std::vector<Resizing> all;
    Shape resized_shape = shape;
    for (size_t axis = 0; axis < axes; ++axis) {
      all.push_back(resizing_of(shape, axis, o));
      if (all.back().in == 0)
        throw ShapeError(
            fmt::format("interpolate: axis {} of shape {} has no element", axis + 2, shape.str()));
      resized_shape.dims()[axis + 2] = all.back().out;
    }
    check_countable(resized_shape, "interpolate");
    Variable result = widened(given);
    for (size_t axis = 0; axis < axes; ++axis) {
      const Resizing& r = all[axis];
      const auto along = static_cast<int64_t>(axis) + 2;
      if (is_open_axis(given, along)) {
        if (r.by_size || r.ratio != 1) result = resized(result, along, open_taps(result, along, r, o));
        continue;
      }
      if (r.in == r.out && (r.ratio == 1 || o.align_corners)) continue;
      result = resized(result, along,
                       nearest ? nearest_taps(r, o.mode == Interpolation::nearest_exact)
                               : weighted_taps(r, o.mode == Interpolation::cubic, o.align_corners));
    }
    return rounded(result, given.dtype());
  });
}

}  // namespace espalier
