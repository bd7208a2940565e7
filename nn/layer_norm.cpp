#include "espalier/nn/layer_norm.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/module_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

class LayerNormState : public LayerStateOf<LayerNormState> {
 public:
  explicit LayerNormState(double epsilon) : epsilon_(epsilon) {
    if (!(epsilon > 0)) throw Error(fmt::format("LayerNorm: epsilon is {}; it must be above 0", epsilon));
    add_slot("weight", {{-1}, std::nullopt, {}});
    add_slot("bias", {{-1}, std::nullopt, {}});
  }

  Variable forward(const Variable& x) override {
    if (!is_real(x.dtype()))
      throw TypeError(fmt::format("LayerNorm: the input must be of a real type, not {}; its shape is {}",
                                  name(x.dtype()), x.shape().str()));
    if (x.rank() == 0) throw ShapeError("LayerNorm: a scalar has no axis to be normalized along");
    if (!weight().defined()) create(x.shape()[-1], x.dtype(), x.device());
    check_fit(x);
    return layer_norm(x, weight(), bias(), epsilon_);
  }

 private:
  Variable& weight() { return entries()[0].slot.value; }
  Variable& bias() { return entries()[1].slot.value; }

  void create(int64_t width, DType dtype, Device device) {
    const std::source_location& where = *building().where;
    bias() = parameter(zeros({width}, dtype).to(device), "bias", where);
    weight() = parameter(ones({width}, dtype).to(device), "weight", where);
  }

  void check_fit(const Variable& x) {
    const Variable& w = weight();
    if (x.shape()[-1] != w.shape()[0])
      throw ShapeError(fmt::format("LayerNorm: an input of shape {} does not fit the weight of shape {}",
                                   x.shape().str(), w.shape().str()));
    if (x.dtype() != w.dtype())
      throw TypeError(fmt::format("LayerNorm: the input is {} and the weight {}; cast() the input",
                                  name(x.dtype()), name(w.dtype())));
  }

  double epsilon_;
};

}  // namespace

LayerNorm::LayerNorm(double epsilon, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<LayerNormState>(epsilon); })) {}

}  // namespace espalier::nn
