// Losses of classes.
#include <fmt/format.h>

#include "espalier/nn/onnx/translate.h"

namespace espalier::onnx {

namespace {

/// Scores [n, classes, …] with the classes last.
Variable classes_last(const Variable& x) { return x.rank() > 2 ? movedim(x, {1}, {-1}) : x; }

CrossEntropyOptions options_of(FileNode& node, DType dtype) {
  CrossEntropyOptions options;
  if (node.has(2)) options.class_weights = cast(node[2], dtype);
  if (node.has("ignore_index")) options.ignored_label = node.integer("ignore_index");
  const std::string reduction = node.text("reduction", "mean");
  if (reduction == "sum")
    options.reduction = LossReduction::sum;
  else if (reduction == "none")
    options.reduction = LossReduction::none;
  else if (reduction != "mean")
    node.fail(fmt::format("there is no reduction '{}'", reduction));
  return options;
}

Outputs likelihood(FileNode& node) {
  const Variable& x = node[0];
  return {nll_loss(classes_last(x), node[1], options_of(node, x.dtype()))};
}

Outputs cross_entropy(FileNode& node) {
  const Variable& x = node[0];
  const Variable loss = softmax_cross_entropy(classes_last(x), node[1], options_of(node, x.dtype()));
  return {loss, node.wants(1) ? log_softmax(x, 1) : Variable()};
}

}  // namespace

void add_losses(Registry& all) {
  all.add("NegativeLogLikelihoodLoss", 12, likelihood);
  all.add("SoftmaxCrossEntropyLoss", 12, cross_entropy);
}

}  // namespace espalier::onnx
