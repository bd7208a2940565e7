#include "espalier/optim/clip.h"

#include <algorithm>

#include "espalier/ops/ops.h"

namespace espalier::optim {

namespace {

Variable as(const Variable& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

}  // namespace

void clip_values(ParameterGradients& gradients, double limit) {
  for (auto& [parameter, gradient] : gradients) gradient = minimum(maximum(gradient, -limit), limit);
}

void clip_norm(ParameterGradients& gradients, double limit) {
  const bool wide = std::any_of(gradients.begin(), gradients.end(),
                                [](const auto& pair) { return pair.second.dtype() == DType::float64; });
  const DType dtype = wide ? DType::float64 : DType::float32;
  Variable squares;
  for (const auto& [parameter, gradient] : gradients) {
    const Variable own = sum(square(as(gradient, dtype)));
    squares = squares.defined() ? squares + own.to(squares.device()) : own;
  }
  if (!squares.defined()) return;
  const Variable scale = minimum(limit / (sqrt(squares) + 1e-6), 1.0);
  for (auto& [parameter, gradient] : gradients)
    gradient = gradient * as(scale, gradient.dtype()).to(gradient.device());
}

}  // namespace espalier::optim
