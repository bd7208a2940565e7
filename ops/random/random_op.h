// The base of ops that draw random numbers.
#pragma once
#include <optional>

#include "espalier/core/gradient_rule.h"
#include "espalier/core/op.h"

namespace espalier {

/// Draws one stream of numbers. A random op that reads no element takes the shape alone from its input.
class RandomOp : public Op {
 public:
  Gradients gradient(const GradientRule& rule) const override { return Gradients(rule.inputs(), Variable()); }

 protected:
  explicit RandomOp(InputSet reads = InputSet::none(), std::optional<Device> device = std::nullopt)
      : Op({.effect = Effect::random,
            .reads = reads,
            .gradient_reads = InputSet::none(),
            .passes_no_gradient = true,
            .output_device = device}) {}
};

}  // namespace espalier
