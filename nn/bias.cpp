#include "espalier/nn/bias.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

class BiasState : public LayerStateOf<BiasState> {
 public:
  BiasState() : LayerStateOf("Bias") { declare("bias", {-1}, init::Zeros()); }
  void create_for(int64_t width, DType dtype) { create_with("width", width, dtype); }

  Variable forward(const Variable& x) override {
    if (x.rank() == 0) throw ShapeError("Bias: a scalar has no axis for the bias");
    fit(x, {{-1, x.shape()[-1]}});
    return x + parameter("bias");
  }
};

}  // namespace

Bias::Bias() : LayerOf(std::make_shared<BiasState>()) {}

Bias::Bias(int64_t width, DType dtype, Where where) : Bias() {
  const CallScope scope(where);
  located(where, [&] { static_cast<BiasState&>(layer_state()).create_for(width, dtype); });
}

}  // namespace espalier::nn
