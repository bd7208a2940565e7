#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/core/train_phase.h"
#include "espalier/core/with_assignment.h"
#include "espalier/nn/layer_state.h"
#include "espalier/nn/weight_norm.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/widened.h"

namespace espalier::nn {

namespace {

/// The parameter as a matrix whose rows lie along `axis`.
Variable as_matrix(const Variable& weight, int64_t axis) {
  std::vector<int64_t> order{axis};
  for (int64_t i = 0; i < static_cast<int64_t>(weight.rank()); ++i)
    if (i != axis) order.push_back(i);
  const Variable rows_first = axis == 0 ? weight : transpose(weight, order);
  return reshape(rows_first, {weight.shape()[axis], -1});
}

/// x / max(‖x‖, epsilon).
Variable unit_vector(const Variable& x, double epsilon) { return x / maximum(sqrt(sum(square(x))), epsilon); }

/// The columns u and v after some iterations.
struct SingularVectors {
  Variable u, v;
  void iterate(const Variable& matrix, int64_t count, double epsilon) {
    const Variable transposed = transpose(matrix);
    for (int64_t i = 0; i < count; ++i) {
      v = unit_vector(matmul(transposed, u), epsilon);
      u = unit_vector(matmul(matrix, v), epsilon);
    }
  }
};

Tensor random_unit_vector(int64_t size, DType dtype, double epsilon) {
  const NoGrad no_tree;
  const DType wide = is_half(dtype) ? float32 : dtype;
  return rounded(unit_vector(Variable(randn({size}, wide)), epsilon), dtype).value();
}

/// values: the original parameter, u and v.
Variable spectrally_normed(const std::vector<Variable>& values, bool training,
                           const SpectralNormOptions& options) {
  const Variable weight = widened(values[0]), matrix = as_matrix(weight, options.axis);
  const auto divided = [&](const SingularVectors& s) {
    return rounded(weight / sum(s.u * matmul(matrix, s.v)), values[0].dtype());
  };
  const SingularVectors before{reshape(widened(values[1]), {-1, 1}), reshape(widened(values[2]), {-1, 1})};
  if (!training) return divided(before);
  SingularVectors now = before;
  now.iterate(stop_gradient(matrix), options.power_iterations, options.epsilon);
  now.u = stop_gradient(now.u), now.v = stop_gradient(now.v);
  const auto stored = [&](const Variable& y, const Variable& buffer, const Variable& column) {
    return with_assignment(y, buffer, rounded(reshape(column, buffer.shape()), buffer.dtype()));
  };
  const Variable w = stored(stored(divided(now), values[1], now.u), values[2], now.v);
  return in_train_phase(w, [&] { return divided(before); });
}

std::shared_ptr<LayerState> spectrally_normed(const Layer& layer, SpectralNormOptions options) {
  auto state = std::static_pointer_cast<LayerState>(layer.state());
  const Shape whole = state->pattern_of(options.parameter, "SpectralNorm");
  if (whole.rank() < 2)
    throw ShapeError(fmt::format("SpectralNorm: the parameter '{}' of shape {} is no matrix",
                                 options.parameter, whole.str()));
  if (options.power_iterations < 1)
    throw Error(
        fmt::format("SpectralNorm: {} power iterations; it needs at least one", options.power_iterations));
  if (!(options.epsilon > 0))
    throw Error(fmt::format("SpectralNorm: epsilon is {}; it must be above 0", options.epsilon));
  options.axis = state->axis_of(options.parameter, options.axis, "SpectralNorm");
  // The sizes of vectors come with the parameter: open ones are unlike all others.
  constexpr int64_t open_rows = -1001, open_columns = -1002;
  int64_t columns = 1;
  for (int64_t i = 0; i < static_cast<int64_t>(whole.rank()); ++i)
    if (i != options.axis) columns = columns < 0 || whole[i] < 0 ? open_columns : columns * whole[i];
  const int64_t rows = whole[options.axis] < 0 ? open_rows : whole[options.axis];
  const auto start = [options](bool of_rows) {
    return [options, of_rows](const Tensor& weight) {
      const int64_t height = weight.shape()[options.axis];
      return random_unit_vector(of_rows ? height : weight.elements() / height, weight.dtype(),
                                options.epsilon);
    };
  };
  state->reparametrize(
      "SpectralNorm",
      {.name = options.parameter,
       .original = options.parameter + "_orig",
       .parts =
           {{.name = options.parameter + "_u", .pattern = {rows}, .buffer = true, .derive = start(true)},
            {.name = options.parameter + "_v", .pattern = {columns}, .buffer = true, .derive = start(false)}},
       .make = [options](const std::vector<Variable>& values,
                         bool training) { return spectrally_normed(values, training, options); },
       .writes_states = true});
  return state;
}

}  // namespace

SpectralNorm::SpectralNorm(Layer layer, SpectralNormOptions options, Where where)
    : LayerOf(located(where, [&] {
        const CallScope scope(where);
        return spectrally_normed(layer, std::move(options));
      })) {}

}  // namespace espalier::nn
