#include "espalier/nn/layer_norm.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
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

  void create_for(int64_t width, DType dtype) {
    if (width <= 0) throw Error(fmt::format("LayerNorm: a width of {}; it must be at least 1", width));
    if (!is_real(dtype))
      throw TypeError(fmt::format("LayerNorm: the dtype must be a real one, not {}", name(dtype)));
    create(cpu(), dtype, {{-1, width}});
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

LayerNorm::LayerNorm(int64_t width, const LayerNormOptions& options, const Where* where)
    : LayerNorm(options.epsilon, *where) {
  const CallScope scope(*where);
  located(*where, [&] { static_cast<LayerNormState&>(layer_state()).create_for(width, options.dtype); });
}

}  // namespace espalier::nn
