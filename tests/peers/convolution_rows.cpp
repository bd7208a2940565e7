// Convolutions along one to three axes.
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
  };
}

}  // namespace peers
