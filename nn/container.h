// Sequential: layers one after another.
#pragma once
#include <functional>

#include "espalier/nn/layer.h"

namespace espalier::nn {

/// What a Sequential can hold: a layer, or a Module of one's own that can be called with a Variable.
template <class M>
concept SequentialElement = std::derived_from<M, Module> && requires(M& module, const Variable& x) {
  { module(x) } -> std::convertible_to<Variable>;
};

/// A layer that does not redefine Layer's call operator.
template <class M>
concept KeepsLayerCall = requires {
  { &M::operator() } -> std::same_as<Variable (Layer::*)(const Variable&, Module::Where) const>;
};

/// Calls its elements in order; without any it is the identity. They are named "0", "1", … and are shared,
/// as handles are. `Sequential{other}` is a copy that shares all of `other`; append it to nest it.
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
    (append_one(std::move(elements)), ...);
    return *this;
  }
  size_t size() const;

 private:
  using Call = std::function<Variable(const Variable&)>;

  template <class Element>
  void append_one(Element element) {
    // A layer is called through its state; an element with its own call operator is stored as a whole.
    if constexpr (KeepsLayerCall<Element>)
      push(element, nullptr);
    else
      push(element, [element](const Variable& x) mutable -> Variable { return element(x); });
  }
  void push(const Module& element, Call call);
};

}  // namespace espalier::nn
