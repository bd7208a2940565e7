// Smooth elementwise activations. Slopes that take several operations are ops of their own, for they are
// computed as often as the activations.
#include "espalier/ops/functions/smooth_activation.h"

#include <algorithm>
#include <numbers>

#include "espalier/core/node.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/scalar_activations.h"
#include "espalier/core/values_later.h"
#include "espalier/ops/elementwise/arithmetic.h"
#include "espalier/ops/elementwise/elementary_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/widened.h"

namespace espalier {

namespace {

/// s (1 − s), the slope of a sigmoid s.
Variable sigmoid_slope(Var s) { return s * (1.0 - s); }

// With s = sigmoid(v), v = k (x + c x³), the slope is s + x s′ v′.
using GeluTanhSlope =
    ByInput<"gelu_tanh_slope", scalar::GeluTanhSlope,
            [](Var g, Var x) {
              constexpr double c = 0.044715, k = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
              const Variable squares = square(x), v = x * (squares * (c * k) + k),
                             v1 = squares * (3 * c * k) + k;
              const Variable s = sigmoid(v), s1 = sigmoid_slope(s), curvature = x * (6 * c * k);
              return g * (s1 * (v1 * 2.0 + x * ((1.0 - s * 2.0) * square(v1) + curvature)));
            },
            follows>;
using GeluTanh = ByInput<"gelu_tanh", scalar::GeluTanh,
                         [](Var g, Var x) { return g * apply_unary<GeluTanhSlope>(x); }, follows>;

using SiluSlope = ByInput<"silu_slope", scalar::SiluSlope,
                          [](Var g, Var x) {
                            const Variable s = sigmoid(x);
                            return g * (sigmoid_slope(s) * (x * (1.0 - s * 2.0) + 2.0));
                          },
                          follows>;
using Silu =
    ByInput<"silu", scalar::Silu, [](Var g, Var x) { return g * apply_unary<SiluSlope>(x); }, follows>;

// With t = tanh(softplus(x)) and s = sigmoid(x): t′ = (1 − t²) s, and the slope is t + x t′.
using MishSlope = ByInput<"mish_slope", scalar::MishSlope,
                          [](Var g, Var x) {
                            const Variable s = sigmoid(x), t = tanh(softplus(x)), t1 = (1.0 - square(t)) * s;
                            return g * (t1 * (x * (1.0 - s - t * s * 2.0) + 2.0));
                          },
                          follows>;
using Mish =
    ByInput<"mish", scalar::Mish, [](Var g, Var x) { return g * apply_unary<MishSlope>(x); }, follows>;

using Softplus =
    WithNumber<"softplus", scalar::Softplus, [](Var g, Var x, Var beta) { return g * sigmoid(x * beta); }>;
using LogSigmoid = ByInput<"log_sigmoid", scalar::LogSigmoid,
                           [](Var g, Var x) { return g * sigmoid(negative(x)); }, follows>;
using SoftSign =
    ByInput<"softsign", scalar::SoftSign, [](Var g, Var x) { return g / square(abs(x) + 1.0); }, follows>;
using TanhShrink =
    ByInput<"tanhshrink", scalar::TanhShrink, [](Var g, Var x) { return g * square(tanh(x)); }, follows>;

/// The first half of an axis times the sigmoid of the second, for floats and doubles.
void gate(const Tensor& x, int64_t axis, Tensor& out) {
  constexpr int64_t block = 1024;
  int64_t half = out.elements(), outer = 1;  // one half behind the other, so many times
  for (size_t i = 0; i < resolve_axis(axis, x.rank(), "glu"); ++i) outer *= x.shape().dims()[i];
  if (half == 0) return;
  half /= outer;
  const int64_t blocks = (half + block - 1) / block;
  visit(x.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_floating_point_v<T>) {
      const T* in = static_cast<const T*>(x.address());
      T* to = static_cast<T*>(out.address());
      parallel_for(outer * blocks, std::max<int64_t>(1, detail::grain / std::min(half, block)),
                   [=](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t o = i / blocks, left = (i - o * blocks) * block,
                                     n = std::min(block, half - left);
                       const T* from = in + 2 * o * half + left;
                       T* result = to + o * half + left;
                       detail::unary_row<scalar::Sigmoid, T, T>(n, result, from + half, 1);
                       detail::binary_row<scalar::Multiply, T, T>(n, result, from, 1, result, 1);
                     }
                   });
    }
  });
}

}  // namespace

Variable gelu(const Operand& x, GeluApproximation approximation) {
  return approximation == GeluApproximation::tanh ? apply_unary<GeluTanh>(x) : gelu(x);
}
Variable silu(const Operand& x) { return apply_unary<Silu>(x); }
Variable mish(const Operand& x) { return apply_unary<Mish>(x); }

Variable softplus(const Operand& x, double beta, double threshold) {
  const CallScope scope(x.where());
  const Variable& v = x.defined("softplus");
  if (beta == 0) located(x.where(), [] { throw Error("softplus: beta must not be 0"); });
  const Variable result = apply_binary<Softplus>(v, beta);
  // There softplus is x, and its slope 1, up to rounding in float32.
  constexpr double rounds_to_x = 18;
  if (v.dtype() != float64 && threshold >= rounds_to_x) return result;
  return where(greater(widened(v) * beta, threshold), v, result);
}
Variable log_sigmoid(const Operand& x) { return apply_unary<LogSigmoid>(x); }
Variable softsign(const Operand& x) { return apply_unary<SoftSign>(x); }
Variable tanhshrink(const Operand& x) { return apply_unary<TanhShrink>(x); }

Variable glu(const Operand& x, int64_t axis) {
  const CallScope scope(x.where());
  const Variable& v = x.defined("glu");
  const int64_t size = located(x.where(), [&] {
    if (v.rank() == 0) throw ShapeError("glu: a scalar has no axis to be halved");
    const int64_t n = v.shape().dims()[resolve_axis(axis, v.rank(), "glu")];
    if (n % 2 != 0)
      throw ShapeError(fmt::format("glu: axis {} of shape {} has an odd size", axis, v.shape().str()));
    return n;
  });
  const Variable first = slice(v, axis, 0, size / 2), second = slice(v, axis, size / 2, size);
  if (!may_be_one_pass({&v})) return first * sigmoid(second);
  const Variable gates = [&] {
    const ValuesLater later;
    return sigmoid(second);
  }();
  const auto compute = [&](Tensor& out) { gate(v.value().contiguous_copy(), axis, out); };
  return apply_by(compute, multiply_op(), {&first, &gates}, x.where());
}

void add_smooth_activation_ops(OpRegistry& ops) {
  ops.add<GeluTanh, GeluTanhSlope, Silu, SiluSlope, Mish, MishSlope, Softplus, LogSigmoid, SoftSign,
          TanhShrink>();
}

}  // namespace espalier
