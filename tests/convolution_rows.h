// Small convolutional networks with what may follow a convolution, for tests of plans that compute both at
// once.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "espalier/nn/batch_norm.h"
#include "espalier/nn/container.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/piecewise_activation.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace espalier::testing {

inline double largest(const Variable& v) { return max(abs(v)).item(); }
inline Tensor floats(const Shape& shape, uint64_t which) { return numbers(shape, -1, 1, which).to(float32); }

/// Running statistics and affine parameters unlike 0 and 1.
inline void vary(const nn::Module& net) {
  uint64_t which = 7;
  for (const auto& list : {net.parameters(), net.buffers()})
    for (auto [path, leaf] : list)
      if (leaf.shape().rank() == 1 && leaf.dtype() == float32)
        set_value(leaf, numbers(leaf.shape(), 0.5, 1.5, ++which).to(float32));
}

struct ConvolutionRow {
  std::string name;
  Shape x;
  std::function<Variable(const nn::Sequential&, const Variable&)> tail;
  nn::ConvOptions convolution = {.kernel = 3, .padding = 1};
  int64_t channels = 16;
  bool norm = true;
};

inline const auto as_it_is = [](const nn::Sequential& net, const Variable& x) { return net(x); };
inline const auto with_relu = [](const nn::Sequential& net, const Variable& x) { return relu(net(x)); };
inline const auto with_tanh = [](const nn::Sequential& net, const Variable& x) { return tanh(net(x)); };
inline const auto with_residual = [](const nn::Sequential& net, const Variable& x) {
  return relu(net(x) + x);
};

inline const std::vector<ConvolutionRow>& convolution_rows() {
  static const std::vector<ConvolutionRow> rows{
      {"batch norm", {2, 16, 9, 7}, as_it_is},
      {"batch norm and relu", {2, 16, 9, 7}, with_relu},
      {"bias and tanh", {3, 16, 8, 8}, with_tanh, {.kernel = 3, .padding = 1}, 16, false},
      {"bias", {3, 16, 8, 8}, as_it_is, {.kernel = 3, .padding = 1}, 16, false},
      {"sigmoid",
       {1, 4, 5, 5},
       [](const nn::Sequential& net, const Variable& x) { return sigmoid(net(x)); },
       {.kernel = 2},
       6},
      {"relu6",
       {2, 3, 11, 6},
       [](const nn::Sequential& net, const Variable& x) { return nn::Relu6()(net(x) * 8.0); },
       {.kernel = 3, .stride = 2, .padding = 1},
       32},
      {"hardtanh",
       {2, 3, 11, 6},
       [](const nn::Sequential& net, const Variable& x) { return hardtanh(net(x), -0.25, 0.5); },
       {.kernel = 3, .stride = 2, .padding = 1},
       32},
      {"residual", {2, 16, 9, 7}, with_residual},
      {"odd channels", {2, 5, 7, 9}, with_relu, {.kernel = 3, .padding = 2, .dilation = 2}, 17},
      {"groups", {2, 8, 6, 6}, with_relu, {.kernel = 3, .groups = 2}, 12},
      {"depthwise with residual", {1, 16, 6, 5}, with_residual, {.kernel = 3, .padding = 1, .groups = 16}},
      {"points of one image", {1, 16, 1, 1}, with_residual, {.kernel = 1}, 16, false},
      {"one channel", {2, 1, 6, 6}, with_relu, {.kernel = 3}, 1, false},
      {"Winograd", {4, 32, 24, 24}, with_residual, {.kernel = 3, .padding = 1}, 32},
  };
  return rows;
}

/// In inference.
inline nn::Sequential network(const ConvolutionRow& row) {
  nn::ConvOptions options = row.convolution;
  options.bias = !row.norm;
  nn::Sequential net(nn::Conv2d(row.channels, options));
  if (row.norm) net.append(nn::BatchNorm());
  (void)net(floats(row.x, 1));
  vary(net);
  net.train(false);
  return net;
}

}  // namespace espalier::testing
