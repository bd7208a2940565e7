// Sequential: layers one after another.
#pragma once
#include <functional>
#include <string>

#include "espalier/core/error.h"
#include "espalier/nn/layer.h"

namespace espalier::nn {

/// A Module that gives a Variable for a Variable.
template <class M>
concept MapsVariable = std::derived_from<M, Module> && requires(M& module, const Variable& x) {
  { module(x) } -> std::convertible_to<Variable>;
};

/// What a Sequential can hold: a layer, or a Module of one's own that can be called with a Variable. A layer
/// whose call gives more, as that of Lstm does, gives what it does as a Layer: its outputs.
template <class M>
concept SequentialElement = MapsVariable<M> || std::derived_from<M, Layer>;

/// A layer that does not redefine Layer's call operator, or whose own call gives more than a Variable.
template <class M>
concept KeepsLayerCall = (std::derived_from<M, Layer> && !MapsVariable<M>) || requires {
  { &M::operator() } -> std::same_as<Variable (Layer::*)(const Variable&, Module::Where) const>;
};

/// Calls its elements in order; without any it is the identity. They are named "0", "1", …, or as the caller
/// says, and are shared, as handles are. `Sequential{other}` is a copy that shares all of `other`; append it
/// to nest it.
class Sequential : public LayerOf<Sequential> {
 public:
  Sequential();
  template <SequentialElement First, SequentialElement... More>
  explicit Sequential(First first, More... more) : Sequential() {
    append(std::move(first), std::move(more)...);
  }

  /// Throws Error if this is a part of one of the elements.
  template <SequentialElement... Elements>
  Sequential& append(Elements... elements) {
    (append_one(std::to_string(size()), std::move(elements)), ...);
    return *this;
  }
  /// The same with a name for the element: `append("conv1", Conv2d(…))`. Throws Error also if the name is
  /// empty, taken or has a dot.
  template <SequentialElement Element>
  Sequential& append(std::string name, Element element, Where where = Where::current()) {
    located(where, [&] { append_one(std::move(name), std::move(element)); });
    return *this;
  }
  size_t size() const;

 private:
  using Call = std::function<Variable(const Variable&)>;

  template <class Element>
  void append_one(std::string name, Element element) {
    // A layer is called through its state; an element with its own call operator is stored as a whole.
    if constexpr (KeepsLayerCall<Element>)
      push(std::move(name), element, nullptr);
    else
      push(std::move(name), element, [element](const Variable& x) mutable -> Variable { return element(x); });
  }
  void push(std::string name, const Module& element, Call call);
};

}  // namespace espalier::nn
