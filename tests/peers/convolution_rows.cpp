// Convolutions along one to three axes, and what plans compute behind them.
#include <sstream>

#include "bridge.h"

namespace peers {
namespace {

using namespace espalier;

ConvolutionPadding convolution_padding(const Case& c) {
  if (c.has("same")) return ConvolutionPadding::same();
  const std::vector<int64_t> before = c.integers("before"), after = c.integers("after");
  std::vector<Padding> ends;
  for (size_t axis = 0; axis < before.size(); ++axis) ends.push_back({before[axis], after[axis]});
  return ConvolutionPadding(ends);
}

/// x, the kernels and the bias, and behind the convolution steps by their names, each with its parameter if
/// it has one.
Outputs conv_chain(const Case& c) {
  const int64_t axes = static_cast<int64_t>(c[0].rank()) - 2;
  const ConvolutionOptions padded{.padding = {{c.integer("padding"), c.integer("padding")}}};
  const Variable first = conv(c[0], c[1], c[2], padded);
  Variable y = first;
  size_t at = 3;
  const auto along_channels = [&](const Variable& v) {
    std::vector<int64_t> shape(1 + static_cast<size_t>(axes), 1);
    shape[0] = -1;
    return reshape(v, Shape(shape));
  };
  std::vector<int64_t> sizes_axes;
  for (int64_t axis = 2; axis < axes + 2; ++axis) sizes_axes.push_back(axis);
  std::istringstream steps(c.text("steps"));
  for (std::string step; std::getline(steps, step, ',');) {
    if (step == "relu") y = relu(y);
    if (step == "sigmoid") y = sigmoid(y);
    if (step == "scale") y = y * along_channels(c[at++]);
    if (step == "shift") y = y + along_channels(c[at++]);
    if (step == "skip") y = y + first;
    if (step == "shortcut") y = y + conv(c[0], c[at++], padded);
    if (step == "conv") y = conv(y, c[at++]);
    if (step == "max_pool") y = max_pool(y, {.kernel = {2}});
    if (step == "avg_pool") y = avg_pool(y, {.kernel = {2}});
    if (step == "concat") y = concat({y, relu(-y)}, 1);
    if (step == "slice") y = slice(y, 1, 1, open_end);
    if (step == "pad") y = pad(y, std::vector<Padding>(static_cast<size_t>(axes), Padding{1, 0}));
    if (step == "mean") y = mean(y, Axes(sizes_axes));
    if (step == "sum") y = sum(y, 1, true);
    if (step == "max") y = max(y, {0, 2}, true);
    if (step == "flatten") y = flatten(y, 1);
    if (step == "merge") y = flatten(y, 2);
  }
  return y;
}

}  // namespace

std::vector<Row> convolution_rows() {
  return {
      {"conv",
       [](const Case& c) -> Outputs {
         const ConvolutionOptions options{.stride = c.integers("stride"),
                                          .padding = convolution_padding(c),
                                          .dilation = c.integers("dilation"),
                                          .groups = c.integer("groups")};
         return c.inputs().size() > 2 ? conv(c[0], c[1], c[2], options) : conv(c[0], c[1], options);
       }},
      {"conv_transpose",
       [](const Case& c) -> Outputs {
         const TransposedConvolutionOptions options{.stride = c.integers("stride"),
                                                    .padding = c.integers("padding"),
                                                    .output_padding = c.integers("output_padding"),
                                                    .dilation = c.integers("dilation"),
                                                    .groups = c.integer("groups")};
         return c.inputs().size() > 2 ? conv_transpose(c[0], c[1], c[2], options)
                                      : conv_transpose(c[0], c[1], options);
       }},
      {"conv_chain", conv_chain},
  };
}

}  // namespace peers
