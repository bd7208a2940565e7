// Elementwise activations with different formulas on either side of some points, for reals. At these points
// derivatives are those of PyTorch.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// x above 0, x · slope elsewhere. Maas et al., Rectifier nonlinearities improve neural network acoustic
/// models, 2013.
Variable leaky_relu(const Operand& x, double slope = 0.01);
/// The same with learned slopes: a number, [] or [1], or [channels] for axis 1 of `x` (of its only axis, if
/// there is one). Throws ShapeError for others. He et al., Delving deep into rectifiers, 2015.
Variable prelu(const Operand& x, const Operand& slopes);
/// The same with slopes drawn for each element, uniform in [lower, upper), in each evaluation; their mean in
/// plans of inference. Throws Error unless lower <= upper. Xu et al., Empirical evaluation of rectified
/// activations in convolutional network, 2015.
Variable rrelu(const Operand& x, double lower = 1.0 / 8, double upper = 1.0 / 3);
/// x above 0, alpha · (eˣ − 1) elsewhere. Clevert et al., Exponential linear units, 2015.
Variable elu(const Operand& x, double alpha = 1);
/// x above 0, alpha · (exp(x / alpha) − 1) elsewhere. Throws Error if alpha is 0. Barron, Continuously
/// differentiable exponential linear units, 2017.
Variable celu(const Operand& x, double alpha = 1);
/// elu with alpha 1.6733, times 1.0507. Klambauer et al., Self-normalizing neural networks, 2017.
Variable selu(const Operand& x);
/// `x` within [0, 6].
Variable relu6(const Operand& x);
/// `x` within [low, high]. Throws Error unless low <= high.
Variable hardtanh(const Operand& x, double low = -1, double high = 1);
/// (x + 3) / 6 within [0, 1].
Variable hardsigmoid(const Operand& x);
/// x · hardsigmoid(x). Howard et al., Searching for MobileNetV3, 2019.
Variable hardswish(const Operand& x);
/// x nearer to 0 by lambda; 0 within [−lambda, lambda]. Throws Error if lambda is negative.
Variable softshrink(const Operand& x, double lambda = 0.5);
/// x; 0 within [−lambda, lambda].
Variable hardshrink(const Operand& x, double lambda = 0.5);
/// x above `bound`, `value` elsewhere.
Variable threshold(const Operand& x, double bound, double value);

}  // namespace espalier
