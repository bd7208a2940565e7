#include "espalier/nn/layer_norm.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

class LayerNormState : public LayerStateOf<LayerNormState> {
 public:
  explicit LayerNormState(double epsilon) : LayerStateOf("LayerNorm"), epsilon_(epsilon) {
    if (!(epsilon > 0)) throw Error(fmt::format("LayerNorm: epsilon is {}; it must be above 0", epsilon));
    declare("weight", {-1}, init::Ones());
    declare("bias", {-1}, init::Zeros());
  }

  Variable forward(const Variable& x) override {
    if (x.rank() == 0) throw ShapeError("LayerNorm: a scalar has no axis to be normalized along");
    fit(x, {{-1, x.shape()[-1]}});
    return layer_norm(x, parameter("weight"), parameter("bias"), epsilon_);
  }

 private:
  double epsilon_;
};

}  // namespace

LayerNorm::LayerNorm(double epsilon, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<LayerNormState>(epsilon); })) {}

}  // namespace espalier::nn
