// The state of layers that are one function without parameters. For writers of layers.
#pragma once
#include <memory>
#include <utility>

#include "espalier/nn/layer_state.h"

namespace espalier::nn {

/// A layer that is one call of `Function`, which holds its settings.
template <class Function>
class FunctionState : public LayerStateOf<FunctionState<Function>> {
 public:
  explicit FunctionState(Function function) : function_(std::move(function)) {}
  Variable forward(const Variable& x) override { return function_(x); }

 private:
  Function function_;
};

template <class Function>
std::shared_ptr<LayerState> layer_of(Function function) {
  return std::make_shared<FunctionState<Function>>(std::move(function));
}

}  // namespace espalier::nn
