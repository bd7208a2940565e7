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
  explicit LayerNormState(const LayerNormOptions& options) : LayerStateOf("LayerNorm"), options_(options) {
    if (!(options.epsilon > 0))
      throw Error(fmt::format("LayerNorm: epsilon is {}; it must be above 0", options.epsilon));
    if (!options.affine) return;
    declare("weight", {-1}, init::Ones());
    if (options.bias) declare("bias", {-1}, init::Zeros());
  }

  void create_for(int64_t width, DType dtype) {
    if (width <= 0) throw Error(fmt::format("LayerNorm: a width of {}; it must be at least 1", width));
    if (!is_real(dtype))
      throw TypeError(fmt::format("LayerNorm: the dtype must be a real one, not {}", name(dtype)));
    create(cpu(), dtype, {{-1, width}});
    if (!options_.affine) width_ = width;
  }

  Variable forward(const Variable& x) override {
    if (x.rank() == 0) throw ShapeError("LayerNorm: a scalar has no axis to be normalized along");
    if (width_ > 0 && x.shape()[-1] != width_)
      throw ShapeError(fmt::format("LayerNorm: an input of shape {}; the last axis must have the size {}",
                                   x.shape().str(), width_));
    fit(x, {{-1, x.shape()[-1]}});
    if (!options_.affine) return layer_norm(x, 1.0, 0.0, options_.epsilon);
    if (!options_.bias) return layer_norm(x, parameter("weight"), 0.0, options_.epsilon);
    return layer_norm(x, parameter("weight"), parameter("bias"), options_.epsilon);
  }

 private:
  LayerNormOptions options_;
  int64_t width_ = 0;  ///< without parameters: that of the inputs, if it was given
};

}  // namespace

LayerNorm::LayerNorm(const LayerNormOptions& options, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<LayerNormState>(options); })) {}

LayerNorm::LayerNorm(int64_t width, const LayerNormOptions& options, const Where* where)
    : LayerNorm(options, *where) {
  const CallScope scope(*where);
  located(*where, [&] { static_cast<LayerNormState&>(layer_state()).create_for(width, options.dtype); });
}

}  // namespace espalier::nn
