// Initializers of weights as matrices: orthogonal ones, identities, sparse ones; and the truncated normal
// distribution.
#pragma once
#include <string_view>

#include "espalier/nn/init.h"

namespace espalier::nn::init {

/// Normal, but only within [low, high], which are values and not multiples of the deviation. Throws Error
/// unless mean and stddev are finite, stddev > 0 and low < high.
struct TruncatedNormal : Initializer {
  explicit TruncatedNormal(double mean = 0, double stddev = 1, double low = -2, double high = 2);
};

/// A random orthogonal matrix times `gain`; a weight of more than two axes is the matrix [out, in · kernel].
/// If it is not square, its rows or its columns are orthonormal, whichever are fewer. Saxe et al., Exact
/// solutions to the nonlinear dynamics of learning in deep linear neural networks, 2014. A parameter of less
/// than two axes is a ShapeError.
struct Orthogonal : Initializer {
  explicit Orthogonal(double gain = 1);
};

/// For a convolution [out, in, …]: zeros but for the middle of the kernel, which is an orthogonal matrix
/// times `gain`. Xiao et al., Dynamical isometry and a mean field theory of CNNs, 2018. ShapeError with less
/// than three axes, or more inputs than outputs.
struct DeltaOrthogonal : Initializer {
  explicit DeltaOrthogonal(double gain = 1);
};

/// Ones on the diagonal of a matrix (two axes; else ShapeError), zeros elsewhere.
struct Eye : Initializer {
  Eye();
};

/// For a convolution [out, in, …] in `groups`: what comes in goes out. The middle of the kernel from input i
/// to output i of each group is 1, all else 0. ShapeError unless it has three to five axes, and outputs that
/// the groups divide.
struct Dirac : Initializer {
  explicit Dirac(int64_t groups = 1);
};

/// A matrix (two axes; else ShapeError) of normal numbers, of which each column has ⌈sparsity · rows⌉ zeros
/// at random places. Martens, Deep learning via Hessian-free optimization, 2010. Throws Error unless sparsity
/// is in [0, 1] and stddev >= 0.
struct Sparse : Initializer {
  explicit Sparse(double sparsity, double stddev = 0.01);
};

/// The gain that keeps the size of activations behind a nonlinearity, for initializers that take one: 1 for
/// "linear" and "sigmoid", 5/3 for "tanh", √2 for "relu", √(2 / (1 + a²)) for "leaky_relu" (a = 0.01 unless
/// given), 3/4 for "selu". Throws Error for any other name.
double gain_of(std::string_view nonlinearity);
double gain_of(std::string_view nonlinearity, double a);

}  // namespace espalier::nn::init
