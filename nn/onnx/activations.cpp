// Activations.
#include <fmt/format.h>

#include "espalier/nn/onnx/translate.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier::onnx {

namespace {

Outputs rectified(FileNode& node) {
  const Variable& x = node[0];
  if (is_real(x.dtype())) return {relu(x)};
  return {computed([](const Variable& a) { return clamp_min(a, 0); }, x)};
}

Outputs shrunk(FileNode& node) {
  const double bound = node.real("lambd", 0.5), bias = node.real("bias", 0);
  return {computed(
      [&](const Variable& x) {
        const Variable zero = zeros_like(x);
        if (!is_real(x.dtype())) {
          const auto whole = static_cast<int64_t>(bias);
          const Variable real = cast(x, float64);
          return where(real < -bound, x + whole, where(real > bound, x - whole, zero));
        }
        return where(x < -bound, x + bias, where(x > bound, x - bias, zero));
      },
      node[0])};
}

Outputs scaled_elu(FileNode& node) {
  const double alpha = node.real("alpha", 1.67326319217681884765625),
               gamma = node.real("gamma", 1.05070102214813232421875);
  return {elu(node[0], alpha) * gamma};
}

Outputs hard_sigmoid(FileNode& node) {
  const double alpha = node.real("alpha", 0.2f), beta = node.real("beta", 0.5);
  return {clamp(node[0] * alpha + beta, 0, 1)};
}

Outputs gaussian_unit(FileNode& node) {
  const std::string approximation = node.text("approximate", "none");
  if (approximation == "tanh") return {gelu(node[0], GeluApproximation::tanh)};
  if (approximation != "none") node.fail(fmt::format("there is no approximation '{}'", approximation));
  return {gelu(node[0])};
}

/// Until opset 12, the axis and all behind it are one.
template <Variable (*along)(const Operand&, int64_t)>
Outputs along_merged_axes(FileNode& node) {
  const Variable& x = node[0];
  const int64_t axis = axis_of(node, x, node.integer("axis", 1));
  return {reshape_like(along(flatten(x, axis), -1), x)};
}
template <Variable (*along)(const Operand&, int64_t)>
Outputs along_axis(FileNode& node) {
  return {along(node[0], axis_of(node, node[0], node.integer("axis", -1)))};
}

Outputs parametric(FileNode& node) {
  const Variable& x = node[0];
  Variable slopes = node[1];
  // Until opset 6, a vector has a slope for each channel.
  if (node.opset() < 7 && slopes.rank() == 1 && x.rank() > 2) {
    std::vector<int64_t> sizes(x.rank() - 1, 1);
    sizes[0] = -1;
    slopes = reshape(slopes, Shape(sizes));
  }
  return {where(x > scalar(0, x.dtype()), x, x * slopes)};
}

Outputs gated(FileNode& node) {
  const double alpha = node.real("alpha", 1);
  return {in_float32(node[0], [&](const Variable& x) { return x * sigmoid(x * alpha); })};
}

}  // namespace

void add_activations(Registry& all) {
  all.add("Relu", 1, rectified);
  all.add("Sigmoid", 1, [](FileNode& n) { return Outputs{sigmoid(n[0])}; });
  all.add("Tanh", 1, [](FileNode& n) { return Outputs{tanh(n[0])}; });
  all.add("LeakyRelu", 1, [](FileNode& n) { return Outputs{leaky_relu(n[0], n.real("alpha", 0.01f))}; });
  all.add("Elu", 1, [](FileNode& n) { return Outputs{elu(n[0], n.real("alpha", 1))}; });
  all.add("Celu", 12, [](FileNode& n) { return Outputs{celu(n[0], n.real("alpha", 1))}; });
  all.add("Selu", 1, scaled_elu);
  all.add("HardSigmoid", 1, hard_sigmoid);
  all.add("HardSwish", 14, [](FileNode& n) { return Outputs{hardswish(n[0])}; });
  all.add("Softplus", 1, [](FileNode& n) { return Outputs{softplus(n[0])}; });
  all.add("Softsign", 1, [](FileNode& n) { return Outputs{softsign(n[0])}; });
  all.add("ThresholdedRelu", 10, [](FileNode& n) { return Outputs{threshold(n[0], n.real("alpha", 1), 0)}; });
  all.add("PRelu", 1, parametric);
  all.add("Shrink", 9, shrunk);
  all.add("Mish", 18, [](FileNode& n) { return Outputs{mish(n[0])}; });
  all.add("Gelu", 20, gaussian_unit);
  all.add("Swish", 24, gated);
  all.add("Softmax", 1, along_merged_axes<softmax>);
  all.add("Softmax", 13, along_axis<softmax>);
  all.add("LogSoftmax", 1, along_merged_axes<log_softmax>);
  all.add("LogSoftmax", 13, along_axis<log_softmax>);
  all.add("Hardmax", 1, along_merged_axes<hardmax>);
  all.add("Hardmax", 13, along_axis<hardmax>);
}

}  // namespace espalier::onnx
