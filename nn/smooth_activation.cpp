#include "espalier/nn/smooth_activation.h"

#include "espalier/nn/function_state.h"
#include "espalier/ops/functions/smooth_activation.h"

namespace espalier::nn {

Silu::Silu() : LayerOf(layer_of([](const Operand& x) { return silu(x); })) {}
Mish::Mish() : LayerOf(layer_of([](const Operand& x) { return mish(x); })) {}
Softplus::Softplus(double beta, double threshold)
    : LayerOf(layer_of([=](const Operand& x) { return softplus(x, beta, threshold); })) {}
LogSigmoid::LogSigmoid() : LayerOf(layer_of([](const Operand& x) { return log_sigmoid(x); })) {}
Softsign::Softsign() : LayerOf(layer_of([](const Operand& x) { return softsign(x); })) {}
Tanhshrink::Tanhshrink() : LayerOf(layer_of([](const Operand& x) { return tanhshrink(x); })) {}
Glu::Glu(int64_t axis) : LayerOf(layer_of([axis](const Operand& x) { return glu(x, axis); })) {}

}  // namespace espalier::nn
