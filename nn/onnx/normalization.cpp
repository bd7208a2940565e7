// Normalizations.
#include <fmt/format.h>

#include "espalier/nn/onnx/translate.h"
#include "espalier/ops/views/axis_views.h"

namespace espalier::onnx {

namespace {

/// [channels] as [1, channels, 1, …]; of a vector [n, channels] as it is.
Variable along_channels(const Variable& vector, const Variable& x) {
  if (x.rank() == 1) return vector;
  std::vector<int64_t> sizes(x.rank(), 1);
  sizes[1] = -1;
  return reshape(vector, Shape(sizes));
}

/// [n, groups, channels of a group, …] with its channels on one axis.
Variable merged_channels(const Variable& x) {
  Dims groups{1, 2};
  for (size_t axis = 3; axis < x.rank(); ++axis) groups.push_back(1);
  return merge_axes(x, groups);
}

Axes axes_from(int64_t first, const Variable& x) {
  Dims axes;
  for (int64_t axis = first; axis < rank_of(x); ++axis) axes.push_back(axis);
  return Axes(axes);
}

/// Of a batch, in training mode; else by the statistics that the file has.
Outputs by_batches(FileNode& node) {
  const Variable& x = node[0];
  const double epsilon = node.real("epsilon", 1e-5f), momentum = node.real("momentum", 0.9f);
  const bool training = node.integer("training_mode", 0) != 0;
  if (node.opset() < 9 && node.integer("spatial", 1) == 0)
    node.refuse("statistics of single elements are not supported");
  Variable center = node[3], spread = node[4];
  const DType dtype = is_half(x.dtype()) ? float32 : x.dtype();
  const Variable wide = x.dtype() == dtype ? x : cast(x, dtype);
  Outputs outputs(1);
  if (training) {
    Dims others{0};
    for (int64_t axis = 2; axis < rank_of(x); ++axis) others.push_back(axis);
    const Variable batch_mean = mean(wide, Axes(others));
    const Variable batch_variance = var(wide, Axes(others), {.correction = 0});
    const auto moved = [&](const Variable& before, const Variable& now) {
      return before * momentum + cast(now, before.dtype()) * (1 - momentum);
    };
    outputs.push_back(moved(center, batch_mean));
    outputs.push_back(moved(spread, batch_variance));
    center = batch_mean;
    spread = batch_variance;
  }
  const auto column = [&](const Variable& vector) { return along_channels(cast(vector, dtype), x); };
  const Variable scale = column(node[1]) / sqrt(column(spread) + epsilon);
  const Variable y = (wide - column(center)) * scale + column(node[2]);
  outputs[0] = cast(y, x.dtype());
  return outputs;
}

Variable standardized(const Variable& x, const Axes& axes, double epsilon) {
  const Variable centered = x - mean(x, axes, true);
  return centered / sqrt(mean(square(centered), axes, true) + epsilon);
}

Outputs by_instances(FileNode& node) {
  const double epsilon = node.real("epsilon", 1e-5f);
  const Variable& x = node[0];
  return {standardized(x, axes_from(2, x), epsilon) * along_channels(node[1], x) +
          along_channels(node[2], x)};
}

/// Until opset 20 there is a scale for each group, from then on one for each channel.
Outputs by_groups(FileNode& node) {
  const double epsilon = node.real("epsilon", 1e-5f);
  const int64_t groups = node.integer("num_groups");
  node.ignore("stash_type");
  if (groups < 1 || node[0].rank() < 2 || node[0].shape()[1] % groups)
    node.fail(fmt::format("{} groups do not divide the channels of {}", groups, node[0].shape().str()));
  return {in_float32(node[0], [&](const Variable& x) {
    const Variable parts = unflatten(x, 1, {groups, x.shape()[1] / groups});
    const auto column = [&](const Variable& vector) { return along_channels(cast(vector, x.dtype()), x); };
    const Variable y = standardized(parts, axes_from(2, parts), epsilon);
    if (node[1].shape()[0] == groups && groups != x.shape()[1] && node.opset() < 21)
      return merged_channels(y * along_channels(cast(node[1], x.dtype()), y) +
                             along_channels(cast(node[2], x.dtype()), y));
    return merged_channels(y) * column(node[1]) + column(node[2]);
  })};
}

Outputs by_layers(FileNode& node) {
  const Variable& x = node[0];
  const double epsilon = node.real("epsilon", 1e-5f);
  const int64_t axis = axis_of(node, x, node.integer("axis", -1));
  node.ignore("stash_type");
  const DType dtype = is_half(x.dtype()) ? float32 : x.dtype();
  const Variable wide = x.dtype() == dtype ? x : cast(x, dtype);
  const Axes axes = axes_from(axis, x);
  const Variable center = mean(wide, axes, true), centered = wide - center;
  const Variable inverse = rsqrt(mean(square(centered), axes, true) + epsilon);
  const bool plain = axis == rank_of(x) - 1 && node.has(2) && !node.wants(1) && !node.wants(2) &&
                     node[1].rank() == 1 && node[2].rank() == 1 && node[1].dtype() == dtype &&
                     node[1].shape() == node[2].shape();
  if (plain && x.dtype() == dtype) return {layer_norm(x, node[1], node[2], epsilon)};
  Variable y = cast(centered * inverse, x.dtype()) * node[1];
  if (node.has(2)) y = y + node[2];
  return {y, center, inverse};
}

Outputs by_root_mean_square(FileNode& node) {
  const Variable& x = node[0];
  const double epsilon = node.real("epsilon", 1e-5f);
  const int64_t axis = axis_of(node, x, node.integer("axis", -1));
  node.ignore("stash_type");
  const Axes axes = axes_from(axis, x);
  const Variable y = in_float32(
      x, [&](const Variable& wide) { return wide / sqrt(mean(square(wide), axes, true) + epsilon); });
  return {cast(y, node[1].dtype()) * node[1]};
}

Outputs by_norm(FileNode& node) {
  const Variable& x = node[0];
  const auto p = static_cast<double>(node.integer("p", 2));
  const Variable size = norm(x, axis_of(node, x, node.integer("axis", -1)), {.p = p, .keep_dims = true});
  return {where(equal(size, scalar(0, x.dtype())), zeros_like(x), x / size)};
}

/// Over `size` channels around each: ⌊(size − 1) / 2⌋ before it and the rest behind it.
Outputs by_neighbours(FileNode& node) {
  const int64_t size = node.integer("size");
  const double alpha = node.real("alpha", 1e-4f), beta = node.real("beta", 0.75), bias = node.real("bias", 1);
  const Variable& x = node[0];
  if (size < 1 || size > 1'000'000 || x.rank() < 2)
    node.fail(fmt::format("{} channels of {} are no neighbourhood", size, x.shape().str()));
  std::vector<Padding> paddings(x.rank() - 1);
  paddings[0] = {(size - 1) / 2, size / 2};
  const Variable squares = sum(sliding_windows(pad(square(x), paddings), 1, size), -1);
  return {x / power(squares * (alpha / static_cast<double>(size)) + bias, beta)};
}

Outputs by_moments(FileNode& node) {
  std::vector<int64_t> axes = node.integers("axes", {0, 2, 3});
  for (int64_t& axis : axes) axis = axis_of(node, node[0], axis);
  return {mean_variance_normalization(node[0], Axes(axes))};
}

/// The identity unless the file asks for training, which draws.
Outputs dropped(FileNode& node) {
  node.ignore("seed");
  node.ignore("is_test");
  const Variable& x = node[0];
  double rate = node.has("ratio") ? node.real("ratio", 0.5) : node.has(1) ? node.number(1) : 0.5;
  if (!node.has(2) || node.number(2) == 0) rate = 0;
  if (rate < 0 || rate >= 1) node.refuse(fmt::format("a ratio of {} is not supported", rate));
  if (rate == 0) return {x, equal(x, x) || isnan(x)};
  node.set_random();
  const Variable kept = bernoulli(full_like(x, 1 - rate));
  return {x * kept / (1 - rate), cast(kept, boolean)};
}

}  // namespace

void add_normalization(Registry& all) {
  all.add("BatchNormalization", 7, by_batches);
  all.add("InstanceNormalization", 6, by_instances);
  all.add("GroupNormalization", 18, by_groups);
  all.add("LayerNormalization", 17, by_layers);
  all.add("RMSNormalization", 23, by_root_mean_square);
  all.add("LpNormalization", 1, by_norm);
  all.add("LRN", 1, by_neighbours);
  all.add("MeanVarianceNormalization", 9, by_moments);
  all.add("Dropout", 7, dropped);
}

}  // namespace espalier::onnx
