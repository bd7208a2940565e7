// The arguments of a gradient rule.
#pragma once
#include "espalier/core/node.h"

namespace espalier {

/// A product of two matrices, transposed or not, as a part of a gradient.
struct GradientProduct {
  Variable a, b;
  MatmulForm form;
};

class GradientRule {
 public:
  /// Products for inputs in `adds_up` may be put into `products`, with the number of the input. `former`:
  /// stand for inputs, by their number, that have been assigned since the node was computed.
  GradientRule(Node& node, std::span<const Variable> output_gradients, uint64_t wanted, uint64_t adds_up,
               std::vector<std::pair<size_t, GradientProduct>>& products,
               std::span<const std::pair<size_t, Variable>> former = {})
      : node_(node),
        output_gradients_(output_gradients),
        wanted_(wanted),
        adds_up_(adds_up),
        products_(products),
        former_(former) {}

  size_t inputs() const { return node_.inputs.size(); }
  Variable input(size_t i = 0) const {
    for (const auto& [number, value] : former_)
      if (number == i) return value;
    return node_.inputs[i].variable();
  }
  Variable output(size_t k = 0) const { return Variable(&node_, static_cast<uint32_t>(k)); }
  /// The gradient that arrives at an output; empty if nothing depends on it.
  const Variable& output_gradient(size_t k = 0) const { return output_gradients_[k]; }
  /// Whether the gradient of that input is needed.
  bool wants(size_t i) const { return (wanted_ >> (i < 63 ? i : 63)) & 1; }
  /// Whether the gradient of that input has parts already, to which a product can be added without computing
  /// it apart. If so, give it to `add_product`, and return an empty Variable for the input.
  bool adds_up(size_t i) const { return i < 64 && (adds_up_ >> i) & 1; }
  void add_product(size_t i, GradientProduct product) const { products_.emplace_back(i, std::move(product)); }
  const CallSite& where() const { return node_.where; }

 private:
  Node& node_;
  std::span<const Variable> output_gradients_;
  uint64_t wanted_, adds_up_;
  std::vector<std::pair<size_t, GradientProduct>>& products_;
  std::span<const std::pair<size_t, Variable>> former_;
};

}  // namespace espalier
