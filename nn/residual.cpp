#include "espalier/nn/residual.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

class ResidualState : public LayerStateOf<ResidualState> {
 public:
  explicit ResidualState(std::shared_ptr<ModuleState> body) : LayerStateOf("Residual") {
    add_child("body", std::move(body));
  }
  bool calls_parts() const override { return true; }
  Variable forward(const Variable& x) override {
    const Variable y = static_cast<LayerState&>(*entries()[0].child).call(x);
    if (!(y.shape() == x.shape()))
      throw ShapeError(fmt::format("Residual: its layers make {} of an input of shape {}; both must be equal",
                                   y.shape().str(), x.shape().str()));
    return x + y;
  }
};

}  // namespace

Residual::Residual(const Sequential& body, Whole) : LayerOf(std::make_shared<ResidualState>(body.state())) {}

}  // namespace espalier::nn
