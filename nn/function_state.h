// The state of layers that are one function without parameters. For writers of layers.
#pragma once
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include "espalier/nn/layer_state.h"

namespace espalier::nn {

/// A layer that is one call of `Function`, which holds its settings. Errors and summaries name the operation;
/// `layer` is how prints name it.
template <class Function>
class FunctionState : public LayerStateOf<FunctionState<Function>> {
 public:
  FunctionState(std::string_view layer, Function function) : layer_(layer), function_(std::move(function)) {}
  Variable forward(const Variable& x) override { return function_(x); }
  std::string_view printed_kind() const override { return layer_; }

 private:
  std::string layer_;
  Function function_;
};

template <class Function>
std::shared_ptr<LayerState> layer_of(std::string_view layer, Function function) {
  return std::make_shared<FunctionState<Function>>(layer, std::move(function));
}
/// The same in the constructor of a layer, whose name it takes.
template <class Function>
std::shared_ptr<LayerState> layer_of(Function function,
                                     std::source_location own = std::source_location::current()) {
  std::string_view name = own.function_name();  // "espalier::nn::Relu::Relu()", or "Relu" by Clang
  name = name.substr(0, name.find('('));
  return layer_of(name.substr(name.rfind(':') + 1), std::move(function));
}

}  // namespace espalier::nn
