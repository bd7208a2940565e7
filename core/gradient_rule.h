// The arguments of a gradient rule.
#pragma once
#include "espalier/core/node.h"

namespace espalier {

class GradientRule {
 public:
  GradientRule(Node& node, std::span<const Variable> output_gradients, uint64_t wanted)
      : node_(node), output_gradients_(output_gradients), wanted_(wanted) {}

  size_t inputs() const { return node_.inputs.size(); }
  Variable input(size_t i = 0) const { return node_.inputs[i].variable(); }
  Variable output(size_t k = 0) const { return Variable(&node_, static_cast<uint32_t>(k)); }
  /// The gradient that arrives at an output; empty if nothing depends on it.
  const Variable& output_gradient(size_t k = 0) const { return output_gradients_[k]; }
  /// Whether the gradient of that input is needed.
  bool wants(size_t i) const { return (wanted_ >> (i < 63 ? i : 63)) & 1; }
  const std::source_location& where() const { return node_.where; }

 private:
  Node& node_;
  std::span<const Variable> output_gradients_;
  uint64_t wanted_;
};

}  // namespace espalier
