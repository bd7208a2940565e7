#include "espalier/nn/rms_norm.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/widened.h"

namespace espalier::nn {

namespace {

class RmsNormState : public LayerStateOf<RmsNormState> {
 public:
  explicit RmsNormState(double epsilon) : LayerStateOf("RmsNorm"), epsilon_(epsilon) {
    if (!(epsilon > 0)) throw Error(fmt::format("RmsNorm: epsilon is {}; it must be above 0", epsilon));
    declare("weight", {-1}, init::Ones());
  }
  void create_for(int64_t width, DType dtype) { create_with("width", width, dtype); }

  Variable forward(const Variable& x) override {
    if (x.rank() == 0) throw ShapeError("RmsNorm: a scalar has no axis to be normalized along");
    fit(x, {{-1, x.shape()[-1]}});
    const Variable wide = widened(x);
    const Variable y = wide / sqrt(mean(square(wide), -1, true) + epsilon_) * widened(parameter("weight"));
    return cast(y, x.dtype());
  }

 private:
  double epsilon_;
};

}  // namespace

RmsNorm::RmsNorm(double epsilon, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<RmsNormState>(epsilon); })) {}

RmsNorm::RmsNorm(int64_t width, const RmsNormOptions& options, const Where* where)
    : RmsNorm(options.epsilon, *where) {
  const CallScope scope(*where);
  located(*where, [&] { static_cast<RmsNormState&>(layer_state()).create_for(width, options.dtype); });
}

}  // namespace espalier::nn
