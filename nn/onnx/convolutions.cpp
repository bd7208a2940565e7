// Convolutions.
#include <fmt/format.h>

#include <algorithm>

#include "espalier/nn/onnx/windows.h"

namespace espalier::onnx {

namespace {

std::vector<int64_t> kernel_sizes(const FileNode& node, const Variable& weights) {
  if (weights.rank() < 3)
    node.fail(fmt::format("its weights {} have no axes to slide along", weights.shape().str()));
  return {weights.shape().begin() + 2, weights.shape().end()};
}

Outputs convolved(FileNode& node) {
  const Windows windows = windows_of(node, node[0], kernel_sizes(node, node[1]));
  const ConvolutionOptions options{.stride = windows.stride,
                                   .padding = windows.padding,
                                   .dilation = windows.dilation,
                                   .groups = node.integer("group", 1)};
  return {node.has(2) ? conv(node[0], node[1], node[2], options) : conv(node[0], node[1], options)};
}

/// [channels] as [1, channels, 1, …].
Variable along_channels(const Variable& vector, size_t rank) {
  std::vector<int64_t> sizes(rank, 1);
  sizes[1] = -1;
  return reshape(vector, Shape(sizes));
}

/// The ends of a transposed convolution that are cut off, after which output_padding is appended.
Outputs transposed(FileNode& node) {
  const Variable &x = node[0], &weights = node[1];
  const std::string auto_pad = node.text("auto_pad", "NOTSET");
  Windows windows = windows_of(node, x, kernel_sizes(node, weights));
  const size_t axes = windows.axes();
  std::vector<int64_t> more = node.integers("output_padding", std::vector<int64_t>(axes, 0));
  const std::vector<int64_t> sizes = node.integers("output_shape");
  if (more.size() != axes || (!sizes.empty() && sizes.size() != axes))
    node.fail("its output_padding or output_shape is that of other axes");
  check_lengths(node, sizes);
  for (size_t i = 0; i < axes; ++i) {
    if (more[i] < 0 || more[i] > 1'000'000) node.fail("its output_padding is out of range");
    const auto axis = static_cast<int64_t>(i) + 2;
    const int64_t whole =
        (x.shape()[axis] - 1) * windows.stride[i] + windows.dilation[i] * (windows.kernel[i] - 1) + 1;
    const bool same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
    if (!same && sizes.empty()) continue;
    if (is_open_axis(x, axis)) node.refuse("its padding needs the size of an open axis");
    const int64_t size = sizes.empty() ? x.shape()[axis] * windows.stride[i] : sizes[i];
    // With a size, the padding is what is left over.
    const int64_t all = whole + more[i] - size, less = all >= 0 ? all / 2 : -(-all / 2);
    if (all < 0) {  // nothing is cut off, and zeros are appended
      windows.padding[i] = {0, 0};
      more[i] -= all;
      continue;
    }
    windows.padding[i] = auto_pad == "SAME_UPPER" ? Padding{less, all - less} : Padding{all - less, less};
  }
  TransposedConvolutionOptions options{
      .stride = windows.stride, .dilation = windows.dilation, .groups = node.integer("group", 1)};
  const bool direct = windows.symmetric() && std::ranges::all_of(more, [](int64_t n) { return n == 0; });
  if (direct) {
    options.padding = windows.before();
    return {node.has(2) ? conv_transpose(x, weights, node[2], options) : conv_transpose(x, weights, options)};
  }
  std::vector<Padding> ends;
  for (size_t i = 0; i < axes; ++i)
    ends.push_back({-windows.padding[i].before, more[i] - windows.padding[i].after});
  Variable y = pad(conv_transpose(x, weights, options), ends);
  if (node.has(2)) y = y + along_channels(node[2], y.rank());
  return {y};
}

/// Integers less their zero points are convolved in float64, which has all sums below 2^53.
Outputs convolved_integers(FileNode& node) {
  const Windows windows = windows_of(node, node[0], kernel_sizes(node, node[1]));
  Variable x = cast(node[0], float64), weights = cast(node[1], float64);
  if (node.has(2)) x = x - cast(reshape(node[2], {}), float64);
  if (node.has(3)) {
    std::vector<int64_t> sizes(weights.rank(), 1);
    sizes[0] = node[3].rank() ? -1 : 1;
    weights = weights - cast(reshape(node[3], Shape(sizes)), float64);
  }
  return {cast(conv(x, weights,
                    {.stride = windows.stride,
                     .padding = windows.padding,
                     .dilation = windows.dilation,
                     .groups = node.integer("group", 1)}),
               int32)};
}

Outputs folded_columns(FileNode& node) {
  const std::vector<int64_t> sizes = node.integers(1), kernel = node.integers(2);
  const size_t axes = sizes.size();
  const std::vector<int64_t> pads = node.integers("pads", std::vector<int64_t>(2 * axes, 0));
  const std::vector<int64_t> ones(axes, 1), stride = node.integers("strides", ones),
                                            dilation = node.integers("dilations", ones);
  if (pads.size() != 2 * axes || kernel.size() != axes)
    node.fail("its pads or kernel are those of other axes");
  check_lengths(node, sizes);
  check_lengths(node, pads);
  // The padded image, whose ends are cut off.
  std::vector<int64_t> whole;
  std::vector<Padding> ends;
  for (size_t i = 0; i < axes; ++i) {
    whole.push_back(sizes[i] + pads[i] + pads[i + axes]);
    ends.push_back({-pads[i], -pads[i + axes]});
  }
  return {pad(fold(node[0], Shape(whole), {.kernel = kernel, .stride = stride, .dilation = dilation}), ends)};
}

/// Each channel by its own kernel, after the last columns of the step before.
Outputs convolved_with_state(FileNode& node) {
  const Variable &x = node[0], &weights = node[1];
  if (x.rank() != 3 || weights.rank() != 3) node.fail("it takes [batch, channels, length]");
  const int64_t before = weights.shape()[2] - 1;
  const Variable joined = node.has(3) ? concat({node[3], x}, 2) : pad(x, {{before, 0}});
  const ConvolutionOptions options{.groups = x.shape()[1]};
  Variable y = node.has(2) ? conv(joined, weights, node[2], options) : conv(joined, weights, options);
  const std::string activation = node.text("activation", "none");
  if (activation == "silu" || activation == "swish")
    y = silu(y);
  else if (activation != "none")
    node.fail(fmt::format("there is no activation '{}'", activation));
  return {y, before ? slice(joined, 2, -before, open_end) : slice(joined, 2, 0, 0)};
}

}  // namespace

void add_convolutions(Registry& all) {
  all.add("Conv", 1, convolved);
  all.add("ConvTranspose", 1, transposed);
  all.add("ConvInteger", 10, convolved_integers);
  all.add("Col2Im", 18, folded_columns);
  all.add("CausalConvWithState", 27, convolved_with_state);
}

}  // namespace espalier::onnx
