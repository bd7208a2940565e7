#include "espalier/nn/activation.h"

#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

/// A layer that is one call of `Function`, which holds its settings.
template <class Function>
class FunctionState : public LayerStateOf<FunctionState<Function>> {
 public:
  explicit FunctionState(Function function) : function_(std::move(function)) {}
  Variable forward(const Variable& x) override { return function_(x); }

 private:
  Function function_;
};

template <class Function>
std::shared_ptr<LayerState> layer_of(Function function) {
  return std::make_shared<FunctionState<Function>>(std::move(function));
}

}  // namespace

Relu::Relu() : LayerOf(layer_of([](const Operand& x) { return relu(x); })) {}
Gelu::Gelu() : LayerOf(layer_of([](const Operand& x) { return gelu(x); })) {}
Tanh::Tanh() : LayerOf(layer_of([](const Operand& x) { return tanh(x); })) {}
Sigmoid::Sigmoid() : LayerOf(layer_of([](const Operand& x) { return sigmoid(x); })) {}
Softmax::Softmax(int64_t axis) : LayerOf(layer_of([axis](const Operand& x) { return softmax(x, axis); })) {}
Flatten::Flatten(int64_t first)
    : LayerOf(layer_of([first](const Operand& x) { return flatten(x, first); })) {}

}  // namespace espalier::nn
