#include "espalier/nn/activation.h"

#include "espalier/nn/function_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

Relu::Relu() : LayerOf(layer_of([](const Operand& x) { return relu(x); })) {}
Gelu::Gelu() : LayerOf(layer_of([](const Operand& x) { return gelu(x); })) {}
Tanh::Tanh() : LayerOf(layer_of([](const Operand& x) { return tanh(x); })) {}
Sigmoid::Sigmoid() : LayerOf(layer_of([](const Operand& x) { return sigmoid(x); })) {}
Softmax::Softmax(int64_t axis) : LayerOf(layer_of([axis](const Operand& x) { return softmax(x, axis); })) {}
LogSoftmax::LogSoftmax(int64_t axis)
    : LayerOf(layer_of([axis](const Operand& x) { return log_softmax(x, axis); })) {}
Softmin::Softmin(int64_t axis) : LayerOf(layer_of([axis](const Variable& x) { return softmax(-x, axis); })) {}
Flatten::Flatten(int64_t first)
    : LayerOf(layer_of([first](const Operand& x) { return flatten(x, first); })) {}

}  // namespace espalier::nn
