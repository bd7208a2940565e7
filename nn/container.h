// Sequential: layers one after another.
#pragma once
#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/name_at.h"
#include "espalier/nn/cloned_parts.h"
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
  /// As Module::replace, also for an element that is a Module of one's own.
  template <SequentialElement Element>
  Element replace(std::string_view path, Element element, Where where = Where::current()) const {
    if constexpr (KeepsLayerCall<Element>)
      replace_part(path, element.state(), where);
    else
      replace_part(path, as_layer(path, element, called(element)), where);
    return element;
  }
  size_t size() const;
  /// An element, whatever its class, as a Layer: it shares parameters and hooks with the Sequential, which it
  /// is called by. Negative numbers count from the end. Throws IndexError.
  Layer operator[](const NumberAt& number) const;
  Layer operator[](const NameAt& name) const;

  class Iterator {
   public:
    using value_type = Layer;
    using difference_type = std::ptrdiff_t;

    /// A reference, for `for (auto& layer : net)`, until the iterator moves on.
    Layer& operator*() const { return layer_.emplace((*sequential_)[at_]); }
    Iterator& operator++() { return ++at_, *this; }
    Iterator operator++(int) { return {*sequential_, at_++}; }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    friend class Sequential;
    Iterator(const Sequential& sequential, size_t at) : sequential_(&sequential), at_(at) {}
    const Sequential* sequential_;
    size_t at_;
    mutable std::optional<Layer> layer_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

 private:
  friend class ElementState;
  /// How an element with a call operator of its own is called, and how its clone is, if it can be cloned.
  struct Called {
    std::function<Variable(const Variable&)> call;
    std::function<Called(const ClonedParts&)> clone;
  };
  template <class Element>
  static Called called(const Element& element) {
    Called made{[element = element](const Variable& x) mutable -> Variable { return element(x); }, nullptr};
    if constexpr (HasWithParts<Element> || sizeof(Element) == sizeof(Module))  // no other handles
      made.clone = [element](const ClonedParts& parts) { return called(parts.of(element)); };
    return made;
  }

  template <class Element>
  void append_one(std::string name, Element element) {
    if constexpr (KeepsLayerCall<Element>)
      push(std::move(name), element);
    else
      push(std::move(name), element, called(element));
  }
  void push(std::string name, const Module& layer);
  void push(std::string name, const Module& element, Called called);
  static std::shared_ptr<ModuleState> as_layer(std::string_view name, const Module& element, Called called);
};

}  // namespace espalier::nn
