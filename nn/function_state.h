// The state of layers that are one function without parameters. For writers of layers.
#pragma once
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include "espalier/nn/layer_state.h"

namespace espalier::nn {

/// A layer that calls `Function`, which holds its settings. `layer` is how prints name it. Errors and
/// summaries name it so where `kind` is the same, else they name the operation, which then is the only one.
template <class Function>
class FunctionState : public LayerStateOf<FunctionState<Function>> {
 public:
  FunctionState(std::string_view layer, Function function, std::string_view kind = "layer")
      : LayerStateOf<FunctionState>(kind), layer_(layer), function_(std::move(function)) {}
  Variable forward(const Variable& x) override { return function_(x); }
  std::string_view printed_kind() const override { return layer_; }

 private:
  std::string layer_;
  Function function_;
};

/// The name of the class whose constructor that is: "espalier::nn::Relu::Relu()", or "Relu" by Clang.
inline std::string_view class_of(const std::source_location& constructor) {
  std::string_view name = constructor.function_name();
  name = name.substr(0, name.find('('));
  return name.substr(name.rfind(':') + 1);
}

template <class Function>
std::shared_ptr<LayerState> layer_of(std::string_view layer, Function function) {
  return std::make_shared<FunctionState<Function>>(layer, std::move(function));
}
/// The same in the constructor of a layer, whose name it takes.
template <class Function>
std::shared_ptr<LayerState> layer_of(Function function,
                                     std::source_location own = std::source_location::current()) {
  return layer_of(class_of(own), std::move(function));
}
/// The same of several operations: errors and summaries name the layer.
template <class Function>
std::shared_ptr<LayerState> layer_of_several(Function function,
                                             std::source_location own = std::source_location::current()) {
  return std::make_shared<FunctionState<Function>>(class_of(own), std::move(function), class_of(own));
}

}  // namespace espalier::nn
