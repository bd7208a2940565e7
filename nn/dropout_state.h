// The state that all dropouts share: a rate, at work in training mode only.
#pragma once
#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/nn/layer_state.h"

namespace espalier::nn {

/// `Self` has `kind`, the layer's name in errors, `check(x)`, which throws for inputs that it does not take,
/// and `drop(x, rate)`.
template <class Self>
class DropoutStateOf : public LayerStateOf<Self> {
 public:
  explicit DropoutStateOf(double rate) : LayerStateOf<Self>(Self::kind), rate_(rate) {
    if (!(rate >= 0 && rate < 1))
      throw Error(fmt::format("{}: the rate must be in [0, 1), not {}", Self::kind, rate));
  }
  Variable forward(const Variable& x) override {
    Self::check(x);
    return this->training() && rate_ > 0 ? Self::drop(x, rate_) : x;
  }

 private:
  double rate_;
};

}  // namespace espalier::nn
