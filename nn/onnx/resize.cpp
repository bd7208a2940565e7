#include "espalier/nn/onnx/resize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "espalier/core/error.h"

namespace espalier::onnx {

namespace {

/// Where in the axis the element `i` of the result lies.
double place_of(int64_t i, const ResizedAxis& axis, const std::string& coordinates) {
  const auto at = static_cast<double>(i), in = static_cast<double>(axis.in), out = axis.scale * in;
  if (coordinates == "asymmetric") return at / axis.scale;
  if (coordinates == "align_corners") return out == 1 ? 0 : at * (in - 1) / (out - 1);
  if (coordinates == "pytorch_half_pixel") return out == 1 ? -0.5 : (at + 0.5) / axis.scale - 0.5;
  if (coordinates == "half_pixel") return (at + 0.5) / axis.scale - 0.5;
  if (coordinates == "half_pixel_symmetric")
    return in / 2 * (1 - static_cast<double>(axis.out) / out) + (at + 0.5) / axis.scale - 0.5;
  if (coordinates == "tf_half_pixel_for_nn") return (at + 0.5) / axis.scale;
  if (coordinates == "tf_crop_and_resize") {
    const double region = (axis.end - axis.begin) * (in - 1);
    return axis.begin * (in - 1) + (out == 1 ? region / 2 : at * region / (out - 1));
  }
  throw FileError(fmt::format("there are no coordinates '{}'", coordinates));
}

int64_t nearest_to(double place, const std::string& rounding) {
  if (rounding == "floor") return static_cast<int64_t>(std::floor(place));
  if (rounding == "ceil") return static_cast<int64_t>(std::ceil(place));
  if (rounding == "round_prefer_ceil") return static_cast<int64_t>(std::floor(place + 0.5));
  if (rounding == "round_prefer_floor" || rounding == "simple")
    return static_cast<int64_t>(std::ceil(place - 0.5));
  throw FileError(fmt::format("there is no rounding '{}'", rounding));
}

/// The interpolating kernel at a distance from an element.
double kernel(double distance, const ResizeMode& mode) {
  const double x = std::abs(distance), a = mode.cubic;
  if (mode.interpolation == "linear") return std::max(0.0, 1 - x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

}  // namespace

ResizeWeights resize_weights(const ResizedAxis& axis, const ResizeMode& mode) {
  ResizeWeights result{zeros({axis.out, axis.in}, float64), zeros({axis.out}, boolean)};
  const auto add = [&](int64_t i, int64_t place, double weight) {
    result.weights.at<double>({i, std::clamp<int64_t>(place, 0, axis.in - 1)}) += weight;
  };
  const bool nearest = mode.interpolation == "nearest";
  if (!nearest && mode.interpolation != "linear" && mode.interpolation != "cubic")
    throw FileError(fmt::format("there is no mode '{}'", mode.interpolation));
  // Kernels are stretched over all elements that become one.
  const double stretch = mode.antialias ? std::min(axis.scale, 1.0) : 1.0;
  const double reach = (mode.interpolation == "cubic" ? 2 : 1) / stretch;
  if (reach > 1e6) throw FileError("the scale of an axis is out of range");
  for (int64_t i = 0; i < axis.out; ++i) {
    const double place = place_of(i, axis, mode.coordinates);
    if (mode.coordinates == "tf_crop_and_resize" && (place < 0 || place > static_cast<double>(axis.in - 1)))
      result.outside.at<bool>({i}) = true;
    if (!std::isfinite(place) || std::abs(place) > 1e9)
      throw FileError("the scale or region of an axis is out of range");
    if (nearest) {
      add(i, nearest_to(place, mode.rounding), 1);
      continue;
    }
    double total = 0;
    std::vector<std::pair<int64_t, double>> taps;
    const auto first = static_cast<int64_t>(std::floor(place - reach)),
               last = static_cast<int64_t>(std::ceil(place + reach));
    for (int64_t k = first; k <= last; ++k) {
      if (mode.exclude_outside && (k < 0 || k >= axis.in)) continue;
      const double weight = kernel((static_cast<double>(k) - place) * stretch, mode);
      if (weight == 0) continue;
      taps.emplace_back(k, weight);
      total += weight;
    }
    for (const auto& [k, weight] : taps) add(i, k, weight / total);
  }
  return result;
}

}  // namespace espalier::onnx
