// Smooth elementwise activations, for reals.
#pragma once
#include <cstdint>

#include "espalier/core/variable.h"

namespace espalier {

/// How gelu computes the standard normal distribution Φ: exactly, or by tanh, as some published models do.
enum class GeluApproximation : uint8_t { none, tanh };
/// x·Φ(x), or x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2. Hendrycks and Gimpel, Gaussian error linear units,
/// 2016.
Variable gelu(const Operand& x, GeluApproximation approximation);
/// x·sigmoid(x), also called swish. Elfwing et al., Sigmoid-weighted linear units, 2017.
Variable silu(const Operand& x);
/// x·tanh(log(1 + eˣ)). Misra, Mish: a self regularized non-monotonic activation function, 2019.
Variable mish(const Operand& x);
/// log(1 + exp(beta x)) / beta, and x where beta x is above the threshold; beta is rounded to the dtype of
/// `x`. Throws Error if beta is 0.
Variable softplus(const Operand& x, double beta = 1, double threshold = 20);
/// log(sigmoid(x)), also where the sigmoid underflows.
Variable log_sigmoid(const Operand& x);
/// x / (1 + |x|).
Variable softsign(const Operand& x);
/// x − tanh(x), with all digits for small x.
Variable tanhshrink(const Operand& x);
/// a · sigmoid(b), for the halves a and b of `x` along an axis of even size (else ShapeError). Dauphin et
/// al., Language modeling with gated convolutional networks, 2016.
Variable glu(const Operand& x, int64_t axis = -1);

}  // namespace espalier
