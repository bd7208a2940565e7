// Calls of layers with inputs and targets. For writers of layers.
#pragma once
#include <fmt/format.h>

#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/adaptive_log_softmax.h"
#include "espalier/nn/layer_state.h"

namespace espalier::nn {

/// Throws ShapeError unless `x` is [n, in].
inline void check_rows_of(std::string_view kind, const Variable& x, int64_t in) {
  if (x.rank() != 2 || x.shape()[1] != in)
    throw ShapeError(fmt::format("{}: an input of shape {} is not [n, {}]", kind, x.shape().str(), in));
}

/// Throws ShapeError or TypeError unless there is an integer for each row of `x`.
inline void check_targets(std::string_view kind, const Variable& x, const Variable& target) {
  if (target.dtype() != int32 && target.dtype() != int64)
    throw TypeError(fmt::format("{}: targets must be int32 or int64, not {}", kind, name(target.dtype())));
  if (target.rank() != 1 || x.rank() == 0 || target.shape()[0] != x.shape()[0])
    throw ShapeError(
        fmt::format("{}: targets of shape {} for inputs of shape {}; there must be one for each row", kind,
                    target.shape().str(), x.shape().str()));
}

/// A call of a layer whose state has `of_targets`.
template <class State>
TargetLogProbs call_with_target(LayerState& layer, const Variable& x, const Variable& target,
                                const Module::Where& where) {
  const CallScope scope(where, layer.kind());
  return located(*build_context().where, [&] {
    (void)x.shape(), (void)target.shape();  // an undefined Variable throws here
    return static_cast<State&>(layer).of_targets(x, target);
  });
}

}  // namespace espalier::nn
