#include "espalier/nn/weight_norm.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/widened.h"

namespace espalier::nn {

namespace {

/// The norms along all axes but that one, which stay with size 1; without it one scalar.
Variable norms_along(const Variable& v, std::optional<int64_t> axis) {
  if (!axis) return sqrt(sum(square(v)));
  Dims others;
  for (int64_t i = 0; i < static_cast<int64_t>(v.rank()); ++i)
    if (i != *axis) others.push_back(i);
  return others.empty() ? abs(v) : sqrt(sum(square(v), Axes(others), true));
}

std::shared_ptr<LayerState> weight_normed(const Layer& layer, const WeightNormOptions& options) {
  auto state = std::static_pointer_cast<LayerState>(layer.state());
  const Shape whole = state->pattern_of(options.parameter, "WeightNorm");
  std::optional<int64_t> axis;
  Shape lengths;
  if (options.axis) {
    axis = state->axis_of(options.parameter, *options.axis, "WeightNorm");
    Dims dims(whole.rank(), 1);
    dims[static_cast<size_t>(*axis)] = whole[*axis];
    lengths = Shape(dims);
  }
  state->reparametrize(
      "WeightNorm",
      {.name = options.parameter,
       .original = options.parameter + "_v",
       .parts = {{.name = options.parameter + "_g",
                  .pattern = lengths,
                  .derive =
                      [axis](const Tensor& v) {
                        const NoGrad no_tree;
                        return rounded(norms_along(widened(Variable(v)), axis), v.dtype()).value();
                      }}},
       .make = [axis](const std::vector<Variable>& values, bool) {
         return weight_norm(values[0], values[1], axis);
       }});
  return state;
}

}  // namespace

Variable weight_norm(const Variable& v, const Variable& g, std::optional<int64_t> axis,
                     std::source_location where) {
  const CallScope scope(where);
  return located(*build_context().where, [&] {
    if (!v.defined() || !g.defined()) throw Error("weight_norm: an operand is an undefined Variable");
    if (axis) axis = static_cast<int64_t>(resolve_axis(*axis, v.rank(), "weight_norm"));
    const Variable wide = widened(v), norms = norms_along(wide, axis);
    bool fits = g.rank() == 0 || g.rank() == norms.rank();
    for (size_t i = 0; fits && i < g.rank(); ++i)
      fits = g.shape().dims()[i] == 1 || g.shape().dims()[i] == norms.shape().dims()[i];
    if (!fits)
      throw ShapeError(fmt::format("weight_norm: lengths of shape {} for norms of shape {}, of a {}",
                                   g.shape().str(), norms.shape().str(), v.shape().str()));
    if (g.dtype() != v.dtype() || !is_real(v.dtype()))
      throw TypeError(fmt::format("weight_norm: directions of {} and lengths of {} must be of one real type",
                                  name(v.dtype()), name(g.dtype())));
    return rounded(wide * (widened(g) / norms), v.dtype());
  });
}

WeightNorm::WeightNorm(Layer layer, WeightNormOptions options, Where where)
    : LayerOf(located(where, [&] {
        const CallScope scope(where);
        return weight_normed(layer, options);
      })) {}

}  // namespace espalier::nn
