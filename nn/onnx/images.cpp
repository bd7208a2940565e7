// Images in other sizes, and places in them.
#include <fmt/format.h>

#include <cmath>

#include "espalier/nn/onnx/resize.h"
#include "espalier/nn/onnx/translate.h"

namespace espalier::onnx {

namespace {

/// An axis times a matrix [out, in] of its weights.
Variable along(const Variable& x, int64_t axis, const Tensor& weights) {
  return movedim(matmul(movedim(x, {axis}, {-1}), transpose(Variable(weights.to(x.dtype())))), {-1}, {axis});
}

/// Sizes and scales of some axes, by the policy for the ratio of their sides.
void keep_ratio(const std::string& policy, std::vector<ResizedAxis>& axes) {
  if (policy == "stretch") return;
  double scale = axes[0].scale;
  for (const ResizedAxis& a : axes)
    scale = policy == "not_larger" ? std::min(scale, a.scale) : std::max(scale, a.scale);
  for (ResizedAxis& a : axes) {
    a.scale = scale;
    a.out = static_cast<int64_t>(std::floor(scale * static_cast<double>(a.in) + 0.5));
  }
}

Variable resized_axes(const FileNode& node, const Variable& x, const std::vector<int64_t>& places,
                      const std::vector<ResizedAxis>& axes, const ResizeMode& mode, double outside) {
  Variable y = x;
  Variable left_out;
  for (size_t i = 0; i < axes.size(); ++i) {
    const bool unchanged =
        axes[i].in == axes[i].out && axes[i].scale == 1 && mode.coordinates != "tf_crop_and_resize";
    if (unchanged) continue;
    if (is_open_axis(x, places[i]))
      node.refuse("it resizes an open axis; give it a size (LoadOptions::sizes)");
    if (axes[i].out < 0) node.fail(fmt::format("it makes an axis of size {}", axes[i].out));
    node.check_constant({axes[i].out, axes[i].in}, float64);
    const ResizeWeights made = resize_weights(axes[i], mode);
    if (mode.interpolation == "nearest") {
      std::vector<int64_t> chosen;
      for (int64_t row = 0; row < axes[i].out; ++row)
        for (int64_t k = 0; k < axes[i].in; ++k)
          if (made.weights.at<double>({row, k}) != 0) chosen.push_back(k);
      y = gather(y, Variable(tensor_from(chosen, {axes[i].out})), places[i]);
    } else {
      y = along(y, places[i], made.weights);
    }
    std::vector<int64_t> sizes(x.rank(), 1);
    sizes[static_cast<size_t>(places[i])] = axes[i].out;
    const Variable here = reshape(Variable(made.outside), Shape(sizes));
    left_out = left_out.defined() ? left_out || here : here;
  }
  if (mode.coordinates != "tf_crop_and_resize" || !left_out.defined()) return y;
  return where(left_out, scalar(outside, y.dtype()), y);
}

/// Inputs: x, the region, scales, sizes. Opset 10 has x and scales alone.
Outputs resized(FileNode& node) {
  const bool old = node.opset() < 11;
  const size_t scales_at = old ? 1 : 2;
  const Variable& x = node[0];
  ResizeMode mode;
  mode.interpolation = node.text("mode", "nearest");
  mode.coordinates = old ? "asymmetric" : node.text("coordinate_transformation_mode", "half_pixel");
  mode.rounding = old ? "floor" : node.text("nearest_mode", "round_prefer_floor");
  mode.cubic = node.real("cubic_coeff_a", -0.75);
  mode.exclude_outside = node.integer("exclude_outside", 0) != 0;
  mode.antialias = node.integer("antialias", 0) != 0;
  const double outside = node.real("extrapolation_value", 0);
  const std::string policy = node.text("keep_aspect_ratio_policy", "stretch");
  std::vector<int64_t> places = node.integers("axes");
  if (places.empty())
    for (int64_t axis = 0; axis < rank_of(x); ++axis) places.push_back(axis);
  for (int64_t& axis : places) axis = axis_of(node, x, axis);
  const bool by_scale = node.has("scales") || (node.has(scales_at) && node[scales_at].shape().elements() > 0);
  const std::vector<double> scales = node.has("scales") ? node.reals("scales")
                                     : by_scale         ? node.numbers(scales_at)
                                                        : std::vector<double>{};
  const std::vector<int64_t> sizes = !by_scale ? node.open_integers(3) : std::vector<int64_t>{};
  if ((by_scale ? scales.size() : sizes.size()) != places.size())
    node.fail("it needs a scale or a size for each axis");
  std::vector<ResizedAxis> axes;
  for (size_t i = 0; i < places.size(); ++i) {
    ResizedAxis a{.in = x.shape()[places[i]]};
    a.scale = by_scale ? scales[i] : static_cast<double>(sizes[i]) / static_cast<double>(a.in);
    if (!(a.scale > 0) || a.scale > 1e6 || a.in < 1)
      node.fail(fmt::format("axis {} of {} cannot have that size", places[i], x.shape().str()));
    a.out = by_scale ? static_cast<int64_t>(std::floor(static_cast<double>(a.in) * a.scale)) : sizes[i];
    axes.push_back(a);
  }
  if (!by_scale && !axes.empty()) keep_ratio(policy, axes);
  if (mode.coordinates == "tf_crop_and_resize") {
    const std::vector<double> region = node.numbers(1);
    if (region.size() != 2 * axes.size()) node.fail("its region is that of other axes");
    for (size_t i = 0; i < axes.size(); ++i) {
      axes[i].begin = region[i];
      axes[i].end = region[i + axes.size()];
    }
  }
  return {in_float32(computable(x), [&](const Variable& wide) {
    const bool real = is_real(wide.dtype()) || mode.interpolation == "nearest";
    return cast(resized_axes(node, real ? wide : cast(wide, float32), places, axes, mode, outside),
                x.dtype());
  })};
}

Outputs sampled(FileNode& node) {
  GridSampleOptions options{.align_corners = node.integer("align_corners", 0) != 0};
  const std::string mode = node.text("mode", node.opset() < 20 ? "bilinear" : "linear"),
                    padding = node.text("padding_mode", "zeros");
  if (mode == "nearest")
    options.mode = SampleMode::nearest;
  else if (mode == "bicubic" || mode == "cubic")
    options.mode = SampleMode::cubic;
  else if (mode != "bilinear" && mode != "linear")
    node.refuse(fmt::format("the mode '{}' is not supported", mode));
  if (padding == "border")
    options.padding = SamplePadding::border;
  else if (padding == "reflection")
    options.padding = SamplePadding::reflection;
  else if (padding != "zeros")
    node.fail(fmt::format("there is no padding_mode '{}'", padding));
  return {grid_sample(node[0], cast(node[1], node[0].dtype()), options)};
}

Outputs affine(FileNode& node) {
  const std::vector<int64_t> sizes = node.integers(1);
  if (sizes.size() < 3) node.fail("its size has no axes of an image");
  return {affine_grid(node[0], Shape(std::vector<int64_t>(sizes.begin() + 2, sizes.end())),
                      node.integer("align_corners", 0) != 0)};
}

Outputs aligned_regions(FileNode& node) {
  const std::string mode = node.text("mode", "avg");
  const bool half =
      node.opset() >= 16 && node.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  if (mode != "avg" && mode != "max") node.refuse(fmt::format("the mode '{}' is not supported", mode));
  return {roi_align(node[0], node[1], node[2],
                    {.size = {node.integer("output_height", 1), node.integer("output_width", 1)},
                     .scale = node.real("spatial_scale", 1),
                     .samples = node.integer("sampling_ratio", 0),
                     .aligned = half,
                     .largest = mode == "max"})};
}

/// Rows of regions are the number of the image and two corners.
Outputs pooled_regions(FileNode& node) {
  return {roi_pool(node[0], node[1],
                   {.size = node.integers("pooled_shape"), .scale = node.real("spatial_scale", 1)})};
}

Outputs best_boxes(FileNode& node) {
  SuppressionOptions options{.centered = node.integer("center_point_box", 0) != 0};
  options.most = node.has(2) ? node.integer(2) : 0;
  if (node.has(3)) options.threshold = node.number(3);
  if (node.has(4)) options.least_score = node.number(4);
  return {non_max_suppression(node[0], node[1], options)};
}

}  // namespace

void add_images(Registry& all) {
  all.add("Resize", 10, resized);
  all.add("Upsample", 7, resized);
  all.add("GridSample", 16, sampled);
  all.add("AffineGrid", 20, affine);
  all.add("RoiAlign", 10, aligned_regions);
  all.add("MaxRoiPool", 1, pooled_regions);
  all.add("NonMaxSuppression", 10, best_boxes);
}

}  // namespace espalier::onnx
